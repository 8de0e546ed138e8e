"""Who reads and writes the memory in which requests lie."""

from collections.abc import Callable

import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.support.run.processes import memory_of_server
from tests.support.servers.serving import Served


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


@pytest.mark.usefixtures("another_user")
def test_another_user_cannot_open_it_at_the_moment_it_is_made(opened: tuple[Served, str]) -> None:
    """It stays open for who opened it, whatever its mode becomes."""
    served, seen = opened
    regions = _regions(served)
    assert regions
    assert not [region for region in regions if region in seen]
