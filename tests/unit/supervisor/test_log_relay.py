import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lmi_backend.supervisor import log_relay
from lmi_backend.supervisor.log_relay import LogFile, LogFormat, log_options, relaying
from tests.support.run.waiting import HANG_SECONDS, wait_for


class Reader:
    """The end of a pipe that nobody reads at first."""

    def __init__(self) -> None:
        self.source, self.target = os.pipe()
        self.data = b""

    def read(self) -> threading.Thread:
        """Read from now on."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while part := os.read(self.source, 1 << 16):
            self.data += part


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    os.close(made.source)


@pytest.fixture
def waits_for_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may not have read all within the usual second."""
    monkeypatch.setattr(log_relay, "_END_SECONDS", HANG_SECONDS)


def write_lines(descriptor: int, count: int) -> None:
    """Write numbered lines of 100 bytes, as a program does that waits for its pipe."""
    for number in range(count):
        os.write(descriptor, b"%099d\n" % number)


@pytest.mark.usefixtures("waits_for_readers")
def test_lines_that_are_read_are_all_there_and_in_order(reader: Reader) -> None:
    reading = reader.read()
    with relaying(reader.target) as descriptor:
        write_lines(descriptor, 20_000)
        os.write(descriptor, b"x" * 200_000 + b"\nno end")
    os.close(reader.target)
    reading.join(HANG_SECONDS)
    *lines, long, last = reader.data.split(b"\n")
    assert [int(line) for line in lines] == [*range(20_000)]
    assert (len(long), last) == (200_000, b"no end")


@pytest.mark.usefixtures("waits_for_readers")
def test_lines_are_rewritten_on_their_way(reader: Reader) -> None:
    reading = reader.read()
    with relaying(reader.target, change=LogFormat(shows_all=False)) as descriptor:
        command = (
            'W1126 12:01:49.686907 25 a.cc:2] "of interest"\nI1126 12:01:49.686907 25 a.cc:2] no\n'
        )
        subprocess.run(["printf", command], check=True, **log_options(descriptor))
    os.close(reader.target)
    reading.join(HANG_SECONDS)
    assert reader.data.endswith(b" WARNING triton: of interest\n")
    assert reader.data.count(b"\n") == 1


def test_a_reader_that_hangs_stops_no_program_and_hears_what_it_missed(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_relay, "BUFFER_BYTES", 200_000)
    with relaying(reader.target) as descriptor:
        command = ["sh", "-c", "seq 500000; echo last line >&2"]
        # It would wait for ever at its pipe's 64 KiB.
        subprocess.run(command, check=True, timeout=60, **log_options(descriptor))
        reading = reader.read()
        wait_for(lambda: b"last line\n" in reader.data)
    os.close(reader.target)
    reading.join(HANG_SECONDS)
    lines = reader.data.decode().splitlines()
    lost = [
        int(line.split()[1]) for line in lines if "of the log were not read and are lost" in line
    ]
    # More may be dropped while it begins to read.
    assert 1 <= len(lost) < 5
    assert sum(lost) + sum(map(str.isdigit, lines)) == 500_000
    assert lines[-1] == "last line"


def test_a_reader_that_left_stops_nobody() -> None:
    reader = Reader()
    os.close(reader.source)
    with relaying(reader.target) as descriptor:
        write_lines(descriptor, 20_000)
    os.close(reader.target)


def test_a_full_disk_stops_nobody() -> None:
    with contextlib.closing(LogFile(Path("/dev/full"))) as file, relaying(file) as descriptor:
        write_lines(descriptor, 20_000)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device or address"):
        LogFile(tmp_path / "pipe")


def test_it_ends_soon_where_nobody_reads(reader: Reader) -> None:
    with relaying(reader.target) as descriptor:
        write_lines(descriptor, 20_000)
    os.close(reader.target)


def test_a_program_does_not_die_of_a_reader_that_left(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo out; echo err >&2; kill -PIPE $$; echo lives"]
    with (tmp_path / "log").open("ab") as file:
        subprocess.run(command, check=True, **log_options(file.fileno()))
    assert (tmp_path / "log").read_text() == "out\nerr\nlives\n"


def _moved(path: Path) -> None:
    path.rename(path.with_name("log.1"))


def _folder_moved_and_made(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    path.parent.mkdir()


@pytest.mark.parametrize(
    "rotate", [_moved, Path.unlink, lambda path: os.truncate(path, 0), _folder_moved_and_made]
)
def test_a_file_that_is_rotated_gets_the_next_lines(
    tmp_path: Path, rotate: Callable[[Path], None]
) -> None:
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    with contextlib.closing(LogFile(path)) as file, relaying(file) as descriptor:
        os.write(descriptor, b"before\n")
        wait_for(lambda: path.read_bytes() == b"before\n")
        rotate(path)
        # It is there before the next line, for whoever follows it.
        wait_for(path.exists)
        os.write(descriptor, b"after\n")
        wait_for(lambda: path.read_bytes() == b"after\n")


def test_lines_of_a_file_that_cannot_be_had_go_on_once_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    warned = ""

    def has_warned() -> bool:
        nonlocal warned
        warned += capsys.readouterr().err
        return bool(warned)

    with contextlib.closing(LogFile(path)) as file, relaying(file) as descriptor:
        shutil.rmtree(path.parent)
        wait_for(has_warned)
        assert warned == (
            f"lmi-backend: --log-file {path}: No such file or directory; "
            "lines go to the file that was there\n"
        )
        os.write(descriptor, b"lost\n")
        path.parent.mkdir()
        wait_for(path.exists)
        os.write(descriptor, b"after\n")
        wait_for(lambda: path.read_bytes().endswith(b"after\n"))
    assert not capsys.readouterr().err
