"""Who learns the key of the restricted APIs."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor.control_key import read_key
from tests.support.servers.serving import Served

# All that a user may read about the processes of a machine.
LOOK = """
import glob
for name in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        print(open(name, errors="replace").read())
    except OSError:
        pass
"""


def test_another_user_finds_the_server_but_not_its_key(
    attacked: Served, as_another_user: Callable[..., str]
) -> None:
    seen = as_another_user(LOOK)
    assert f"--http-port={attacked.http_port}" in seen
    assert "lmi-backend-key=***" in seen
    assert attacked.control_key.read_text(encoding="ascii").strip() not in seen


def test_no_log_and_no_worker_has_it(attacked: Served) -> None:
    key = attacked.control_key.read_text(encoding="ascii").strip()
    assert key not in attacked.log()
    (worker,) = attacked.workers("echo")
    assert not [each for each in psutil.Process(worker.pid).environ().values() if key in each]


def test_the_key_opens_what_it_restricts(attacked: Served) -> None:
    """Else the refusals could have another reason."""
    key = attacked.control_key.read_text(encoding="ascii").strip()
    status, models = attacked.post("/v2/repository/index", {}, {"lmi-backend-key": key})
    assert (status, {each["name"] for each in models}) == (200, {"echo", "echo_infer"})


@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/logging", "/v2/trace/setting"])
def test_without_it_operators_settings_are_refused(attacked: Served, path: str) -> None:
    status, answer = attacked.post(path, {"log_verbose_level": 9, "trace_level": ["TENSORS"]})
    assert (status, "expecting header" in answer["error"]) == (403, True)


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [
        (0o644, "0123456789abcdef", "all users may read it"),
        (0o600, "short", "16 to 256 letters"),
        (0o600, "0123456789abcdef\nX: y", "16 to 256 letters"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(
    tmp_path: Path, mode: int, text: str, words: str
) -> None:
    path = tmp_path / "key"
    path.write_text(text, encoding="ascii")
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=words):
        read_key(path)


def test_a_missing_file_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = read_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path) == key
    assert len(key) == 64
