"""What a worker logs on standard error, which the stub takes line by line."""

from __future__ import annotations

import logging
import sys
from typing import Final

_LEVEL: Final = logging.INFO


def configure_logs() -> None:
    """Log from here on; our own lines too while an engine's import has the root logger silent."""
    form, own = "%(levelname)s %(name)s: %(message)s", logging.getLogger("lmi_backend")
    logging.basicConfig(stream=sys.stderr, level=_LEVEL, format=form)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(form))
    own.addHandler(handler)
    own.setLevel(_LEVEL)
    own.propagate = False


def restore_logs() -> None:
    """Let users' code log again as before an engine was imported.

    A package that vLLM 0.32 imports, model_hosting_container_standards, has the root logger of its
    process let errors only through.
    """
    root = logging.getLogger()
    root.setLevel(_LEVEL)
    for handler in root.handlers:
        handler.setLevel(logging.NOTSET)


def log_tracebacks_once() -> None:
    """Log each exception with its traceback once; to be called when the engine is loaded.

    An engine that dies raises one exception in all its requests. Each adds its own frames, so that
    32 requests logged 5,000 lines, which took 1.4 s before the stub learnt of the death.
    """
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    once = _OneTraceback()
    for handler in {each for one in loggers for each in getattr(one, "handlers", ())}:
        handler.addFilter(once)


_LOGGED: Final = "_lmi_backend_logged"
"""Member of an exception: when it was logged."""


class _OneTraceback(logging.Filter):
    """Takes the traceback from each record of an exception but the first."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        # Another handler may get the first record after this one.
        if vars(error).setdefault(_LOGGED, record.created) != record.created:
            record.exc_info = record.exc_text = None
        return True
