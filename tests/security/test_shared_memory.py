"""Who reads and writes the memory in which requests lie."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.support.attackers import ECHO, PYTHON
from tests.support.processes import memory_of_server
from tests.support.serving import Served, serve, write_properties

# Opens each new region of ours as soon as it is there, until it is ended; says which it could.
RACE = """
import os
seen = set(os.listdir("/dev/shm"))
print("ready", flush=True)
while True:
    for name in set(os.listdir("/dev/shm")) - seen:
        if name.startswith("lmi_"):
            try:
                os.open("/dev/shm/" + name, os.O_RDONLY)
            except OSError:
                continue
            seen.add(name)
            print("opened", name, flush=True)
"""


def _regions(served: Served) -> list[str]:
    names = [path.name for path in memory_of_server(served.family())]
    # Of no size: who holds its lock owns the names.
    return [name for name in names if not name.endswith("_owner")]


def test_a_client_that_knows_its_name_cannot_register_it(attacked: Served) -> None:
    for name in _regions(attacked):
        path = "/v2/systemsharedmemory/region/mine/register"
        body = {"key": f"/{name}", "offset": 0, "byte_size": 4096}
        assert attacked.post(path, body)[0] == 403
        with (
            tritonclient.grpc.InferenceServerClient(attacked.grpc) as client,
            pytest.raises(InferenceServerException, match="restricted, expecting header"),
        ):
            client.register_system_shared_memory("mine", f"/{name}", 4096)


@pytest.mark.parametrize("kind", ["systemsharedmemory", "cudasharedmemory"])
@pytest.mark.parametrize("action", ["status", "unregister"])
def test_a_client_does_not_see_what_is_registered(attacked: Served, kind: str, action: str) -> None:
    with tritonclient.http.InferenceServerClient(attacked.http) as client:
        method = client._get if action == "status" else lambda *a: client._post(a[0], "", *a[1:])
        assert method(f"v2/{kind}/{action}", None, None).status_code == 403


def test_another_user_cannot_open_it(attacked: Served, as_another_user: Callable[..., str]) -> None:
    text = "import os, sys\nfor n in sys.argv[1:]: print(os.access('/dev/shm/' + n, os.R_OK))"
    assert set(as_another_user(text, *_regions(attacked)).split()) == {"False"}


def test_another_user_cannot_open_it_at_the_moment_it_is_made(
    tmp_path: Path, another_user: dict[str, Any]
) -> None:
    """It stays open for who opened it, whatever its mode becomes."""
    folder = write_properties(tmp_path / "echo", ECHO)
    command = [PYTHON, "-I", "-c", RACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **another_user) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
        with serve([folder], tmp_path) as served:
            (region,) = _regions(served)
        racer.kill()
        assert region not in racer.stdout.read()
