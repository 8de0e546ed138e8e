"""The front end's log is complete when it is read, and waits for nobody when it is not."""

import io
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from lmi_backend.frontend.log import GatheredHandler


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("of this test")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_each_line_is_written_once_and_in_order(logger: logging.Logger) -> None:
    written = io.StringIO()
    handler = GatheredHandler(written)
    logger.addHandler(handler)

    def say(who: str) -> None:
        for number in range(1000):
            logger.info("%s %d", who, number)

    talkers = [threading.Thread(target=say, args=(who,)) for who in "abc"]
    for talker in talkers:
        talker.start()
    for talker in talkers:
        talker.join()
    handler.close()
    lines = written.getvalue().splitlines()
    for who in "abc":
        said = [line for line in lines if line.startswith(who)]
        assert said == [f"{who} {number}" for number in range(1000)]


def test_a_reader_that_stands_still_holds_nobody_up(logger: logging.Logger) -> None:
    out, into = os.pipe()
    lines: list[str] = []
    with open(out, encoding="utf-8") as reader:
        late = threading.Thread(target=lambda: lines.extend(reader))
        with open(into, "w", encoding="utf-8") as full:
            handler = GatheredHandler(full)
            logger.addHandler(handler)
            # More than a pipe holds, and more lines than are kept.
            for _ in range(30_000):
                logger.info("x" * 100)
            late.start()
            handler.close()
        late.join()
    assert 0 < len(lines) < 30_000
