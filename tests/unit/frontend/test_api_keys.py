"""Keys of the front end: the file, the limits, and what a change of the file does."""

import os
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError, HttpError
from lmi_backend.frontend.api_keys import ApiKeys, RateLimitError, hash_of


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    # The clock of a file system may be coarse.
    os.utime(path, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns + len(lines)))
    return path


def test_a_key_is_known_by_its_hash(tmp_path: Path) -> None:
    file = write(tmp_path / "keys", "# who may ask", f"alice {hash_of('secret')} operator", "")
    keys = ApiKeys(file)
    assert keys.are_needed
    assert (keys.find("secret").name, keys.find("secret").is_operator) == ("alice", True)
    for wrong in ("", "Secret", hash_of("secret")):
        with pytest.raises(HttpError) as refused:
            keys.find(wrong)
        assert refused.value.status == 401


def test_without_keys_nobody_needs_one() -> None:
    assert not ApiKeys(None).are_needed


def test_one_key_of_the_environment_is_an_operators() -> None:
    assert ApiKeys(None, "only").find("only").is_operator


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice", "accepted: NAME sha256:HASH"),
        ("alice secret", "accepted: NAME sha256:HASH"),
        (f"al/ice {hash_of('x')}", "accepted: NAME sha256:HASH"),
        (f"alice {hash_of('x')} admin", "admin is unknown"),
        (f"alice {hash_of('x')} running=0", "running=0 is unknown"),
        (f"alice {hash_of('x')} running=1e9", "running=1e9 is unknown"),
    ],
)
def test_a_wrong_line_is_named_by_its_number(tmp_path: Path, line: str, said: str) -> None:
    file = write(tmp_path / "keys", f"bob {hash_of('b')}", line)
    with pytest.raises(ConfigurationError, match=rf"{file}:2: .*{said}"):
        ApiKeys(file)


def test_a_key_runs_no_more_at_once_than_it_may(tmp_path: Path) -> None:
    keys = ApiKeys(write(tmp_path / "keys", f"alice {hash_of('a')} running=2"))
    alice = keys.find("a")
    alice.enter()
    alice.enter()
    with pytest.raises(RateLimitError) as refused:
        alice.enter()
    assert (refused.value.status, refused.value.seconds) == (429, 1)
    alice.leave(0)
    alice.enter()


def test_tokens_are_paid_back_by_the_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("lmi_backend.frontend.api_keys.time.monotonic", lambda: now[0])
    file = write(tmp_path / "keys", f"alice {hash_of('a')} tokens-per-minute=60")
    alice = ApiKeys(file).find("a")
    alice.enter()
    alice.leave(90)
    with pytest.raises(RateLimitError, match="tokens per minute") as refused:
        alice.enter()
    assert refused.value.seconds == 31
    now[0] += 31
    alice.enter()


def test_the_limits_are_shared_by_the_processes_of_a_port(tmp_path: Path) -> None:
    file = write(tmp_path / "keys", f"alice {hash_of('a')} running=5 requests-per-minute=10")
    assert ApiKeys(file, share=2).find("a").limits == {"running": 3, "requests-per-minute": 5}


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("lmi_backend.frontend.api_keys.time.monotonic", lambda: now[0])
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
