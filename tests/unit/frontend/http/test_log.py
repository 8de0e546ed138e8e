"""The front end's log is complete when it is read, and waits for nobody when it is not."""

import io
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from lmi_backend.frontend.http.log import BatchingHandler, LineFormatter, as_field


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("of this test")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    logger.handlers.clear()


def test_each_line_is_written_once_and_in_order(logger: logging.Logger) -> None:
    written = io.StringIO()
    handler = BatchingHandler(written)
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
        own_lines = [line for line in lines if line.startswith(who)]
        assert own_lines == [f"{who} {number}" for number in range(1000)]


def test_a_reader_that_stands_still_holds_nobody_up(logger: logging.Logger) -> None:
    out, into = os.pipe()
    lines: list[str] = []
    with open(out, encoding="utf-8") as reader:
        late = threading.Thread(target=lambda: lines.extend(reader))
        with open(into, "w", encoding="utf-8") as full:
            handler = BatchingHandler(full)
            logger.addHandler(handler)
            # More than a pipe holds, and more lines than are kept.
            for _ in range(30_000):
                logger.info("x" * 100)
            late.start()
            handler.close()
        late.join()
    assert 0 < len(lines) < 30_000


FORGED = "x\n2026-11-25 12:00:00 INFO forged\x1b[31m\u2028y"


def test_whatever_is_logged_is_one_line_and_a_trace_begins_with_blanks(
    logger: logging.Logger,
) -> None:
    written = io.StringIO()
    handler = BatchingHandler(written)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)

    def fail() -> None:
        raise ValueError(FORGED)

    try:
        fail()
    except ValueError:
        logger.exception("%s failed", FORGED)
    handler.close()
    first, *trace = written.getvalue().split("\n")[:-1]
    assert first == r"ERROR x\n2026-11-25 12:00:00 INFO forged\x1b[31m\u2028y failed"
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert trace[-1] == r"  2026-11-25 12:00:00 INFO forged\x1b[31m\u2028y"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("3f9c-a.b_c~1", "3f9c-a.b_c~1"),
        ("arn:aws:x/y@z+1,2;3", "arn:aws:x/y@z+1,2;3"),
        ("1 key=boss status=200", "1%20key%3Dboss%20status%3D200"),
        ("dGVzdA==", "dGVzdA%3D%3D"),
        ("a%20b", "a%2520b"),
        ('"a"', "%22a%22"),
        ("é\u2028", "%C3%A9%E2%80%A8"),
        ("", ""),
    ],
)
def test_a_value_of_a_field_begins_no_other_field(text: str, shown: str) -> None:
    assert as_field(text) == shown
