"""Keys of the front end: the file, the limits, and what a change of the file does."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError, HttpError
from lmi_backend.frontend.http.api_keys import ApiKeys, RateLimitError, hash_of
from lmi_backend.frontend.http.certificate import MOST_BYTES


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    # The clock of a file system may be coarse.
    os.utime(path, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns + len(lines)))
    return path


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock shows."""
    now = [1000.0]
    monkeypatch.setattr("lmi_backend.frontend.http.api_keys.time.monotonic", lambda: now[0])
    return now


def test_a_key_is_known_by_its_hash(tmp_path: Path) -> None:
    file = write(tmp_path / "keys", "# who may ask", f"alice {hash_of('secret')} operator", "")
    keys = ApiKeys(file)
    assert keys.are_needed
    assert (keys.find("secret").name, keys.find("secret").is_operator) == ("alice", True)
    for wrong in ("", "Secret", hash_of("secret")):
        with pytest.raises(HttpError) as refused:
            keys.find(wrong)
        assert refused.value.status == 401


def test_one_key_of_the_environment_is_an_operators_and_without_any_nobody_needs_one() -> None:
    assert ApiKeys(None, "only").find("only").is_operator
    assert not ApiKeys(None).are_needed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alice", "accepted: NAME sha256:HASH"),
        ("alice secret", "accepted: NAME sha256:HASH"),
        (f"al/ice {hash_of('x')}", "accepted: NAME sha256:HASH"),
        (f"alice {hash_of('x')} admin", "admin is unknown"),
        (f"alice {hash_of('x')} running=0", "running=0 is unknown"),
        (f"alice {hash_of('x')} running=1e9", "running=1e9 is unknown"),
        (f"alice {hash_of('x')} running={'9' * 5000}", "running=9.*5008 characters"),
        ("alice sha256:\0", "accepted: NAME sha256:HASH"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    file = write(tmp_path / "keys", f"bob {hash_of('b')}", line)
    with pytest.raises(ConfigurationError, match=rf"{file}:2: .*{message}"):
        ApiKeys(file)


def test_tokens_are_paid_back_by_the_minute(tmp_path: Path, now: list[float]) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')} tokens-per-minute=60")
    alice = ApiKeys(file).find("a")
    alice.enter()
    alice.leave(90)
    with pytest.raises(RateLimitError, match="tokens per minute") as refused:
        alice.enter()
    assert refused.value.seconds == 31
    now[0] += 31
    alice.enter()


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("name", ["running", "requests-per-minute"])
def test_the_processes_of_a_port_together_keep_a_limit(
    tmp_path: Path, name: str, limit: int
) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')} {name}={limit}")
    for processes in range(1, 5):
        entered = 0
        for place in range(processes):
            alice = ApiKeys(file, "", processes, place).find("a")
            for _ in range(limit + 1):
                with contextlib.suppress(RateLimitError):
                    alice.enter()
                    entered += 1
            with pytest.raises(RateLimitError) as refused:
                alice.enter()
            assert (refused.value.status, refused.value.seconds >= 1) == (429, True)
        assert entered == limit, processes


def test_a_client_that_is_back_runs_beside_its_answer(tmp_path: Path) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')} running=1 tokens-per-minute=5")
    alice = ApiKeys(file).find("a")
    alice.enter()
    alice.leave(9)
    with pytest.raises(RateLimitError, match="tokens per minute"):
        alice.enter()
    alice.enter(is_back=True)
    alice.enter(is_back=True)
    with pytest.raises(RateLimitError, match="run already"):
        alice.enter(is_back=True)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, now: list[float]
) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')} running=1")
    keys = ApiKeys(file)
    alice = keys.find("a")
    alice.enter()
    write(file, f"alice {hash_of('a')} running=1", f"bob {hash_of('b')}")
    now[0] += 2
    assert keys.find("b").name == "bob"
    # What she has running counts on.
    assert keys.find("a") is alice
    write(file, "nonsense", "", "")
    now[0] += 2
    assert keys.find("b").name == "bob"
    write(file, f"bob {hash_of('b')}", "", "", "")
    now[0] += 2
    with pytest.raises(HttpError):
        keys.find("a")
    for number, word in enumerate(("operator", "", "operator"), start=5):
        write(file, f"bob {hash_of('b')} {word}", *[""] * number)
        now[0] += 2
        assert keys.find("b").is_operator is (word == "operator")


def not_utf8(path: Path) -> None:
    path.write_bytes(f"bob {hash_of('b')}\n# caf\xe9\n".encode("latin-1"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def too_large(path: Path) -> None:
    with path.open("r+") as file:
        file.truncate(MOST_BYTES + 1)


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def a_null(path: Path) -> None:
    path.write_text(f"bob\0 {hash_of('b')}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "warning"),
    [
        (not_utf8, "keys:2 (--api-keys): byte 0xe9; accepted: UTF-8"),
        (a_folder, "accepted: a file"),
        (a_pipe, "accepted: a file"),
        (too_large, f"accepted: a file of at most {MOST_BYTES}"),
        (a_link_to_itself, "Too many levels of symbolic links"),
        (a_null, "accepted: NAME sha256:HASH"),
        (Path.unlink, "No such file"),
    ],
)
def test_a_spoilt_file_is_said_once_and_leaves_the_keys(
    tmp_path: Path,
    now: list[float],
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    warning: str,
) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')}")
    keys = ApiKeys(file)
    spoil(file)
    for _ in range(5):
        now[0] += 2
        assert keys.find("a").name == "alice"
    (message,) = caplog.messages
    assert message.startswith("the keys are left as they were: ")
    assert warning in message
    fresh = write(tmp_path / "fresh", f"bob {hash_of('b')}")
    if file.is_dir():
        file.rmdir()
    fresh.replace(file)
    now[0] += 2
    assert keys.find("b").name == "bob"


@pytest.mark.parametrize("error", [RuntimeError("odd"), MemoryError(), RecursionError()])
def test_whatever_fails_at_the_file_no_request_does(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> str:
        raise error

    file = write(tmp_path / "keys", f"alice {hash_of('a')}")
    keys = ApiKeys(file)
    monkeypatch.setattr("lmi_backend.frontend.http.api_keys.text_of", fail)
    write(file, f"bob {hash_of('b')}", "")
    now[0] += 2
    assert keys.find("a").name == "alice"
