"""What prints into a pipe that nobody reads neither fails nor hangs."""

import os
import threading

from lmi_backend.worker.survival import OwnOutput
from tests.support.waiting import HANG_SECONDS

MUCH = 1 << 20


def test_what_is_printed_while_nobody_reads_is_dropped_but_for_the_last() -> None:
    reader, writer = os.pipe()
    output = OwnOutput(writer)
    os.close(reader)
    printing = threading.Thread(target=lambda: _print(writer))
    with output.flowing():
        printing.start()
        printing.join(HANG_SECONDS)
        assert not printing.is_alive()
    # As the next stub opens it.
    with open(f"/proc/self/fd/{writer}", "rb", buffering=0) as again:
        os.close(writer)
        assert again.read(MUCH).endswith(b"the end\n")


def _print(writer: int) -> None:
    with os.fdopen(os.dup(writer), "wb") as file:
        file.write(b"x" * MUCH)
        file.write(b"the end\n")


def test_what_is_no_pipe_cannot_be_kept() -> None:
    with open(os.devnull, "wb") as file:
        assert not OwnOutput(file.fileno()).is_writable
