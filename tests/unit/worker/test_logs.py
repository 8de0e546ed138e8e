"""What a worker logs reaches its standard error whatever an engine makes of the root logger."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lmi_backend.worker.logs import log_tracebacks_once

PROGRAM = """
import logging
from lmi_backend.worker.logs import configure_logs, restore_logs
own, users = logging.getLogger("lmi_backend.worker.main"), logging.getLogger("model")
configure_logs()
root = logging.getLogger()
root.setLevel(logging.ERROR)  # as an engine's import
for handler in root.handlers:
    handler.setLevel(logging.ERROR)
own.info("own, meanwhile")
users.info("user's, meanwhile")
restore_logs()
own.info("own, then")
users.info("user's, then")
"""


def test_an_engine_does_not_silence_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [
        "INFO lmi_backend.worker.main: own, meanwhile",
        "INFO lmi_backend.worker.main: own, then",
        "INFO model: user's, then",
    ]


class EngineDead(Exception):
    """As engines have them: a class of its own."""


def _fail(error: Exception) -> None:
    raise error


@pytest.fixture
def engines_log() -> Iterator[tuple[logging.Logger, list[io.StringIO]]]:
    """A logger with two handlers, and what each of them wrote."""
    logger, pages = logging.getLogger("an engine"), [io.StringIO(), io.StringIO()]
    logger.handlers, logger.propagate = [logging.StreamHandler(page) for page in pages], False
    before = {handler: handler.filters[:] for handler in logging.root.handlers}
    yield logger, pages
    logger.handlers = []
    for handler, filters in before.items():
        handler.filters = filters


def test_an_exception_of_many_requests_has_one_traceback(
    engines_log: tuple[logging.Logger, list[io.StringIO]],
) -> None:
    logger, pages = engines_log
    log_tracebacks_once()
    dead, other = EngineDead("the core died"), EngineDead("another")
    for error in (dead, dead, dead, other, ValueError("of Python")):
        try:
            _fail(error)
        except Exception:
            logger.exception("a request failed")
    for page in pages:
        assert page.getvalue().count("a request failed") == 5
        assert page.getvalue().count("Traceback") == 3
        assert page.getvalue().count("the core died") == 1
