"""A client that has the server load code of its own: Triton's repository API with `file:`."""

import base64
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from tests.support.servers.serving import Served

LOAD = "/v2/repository/models/evil/load"
SPELLINGS = (
    LOAD,
    f"{LOAD}?a=b",
    f"/{LOAD}",
    f"{LOAD}/",
    "/v2/models/../repository/models/evil/load",
    "/v2/repository/models/%65vil/load",
)


def _evil(marker: Path) -> dict[str, Any]:
    """Return the parameters of a load whose code leaves a mark."""
    code = f"open({str(marker)!r}, 'w').close()\nclass TritonPythonModel:\n    pass\n"
    output = [{"name": "o", "data_type": "TYPE_INT32", "dims": [1]}]
    config = {"backend": "python", "max_batch_size": 0, "input": output, "output": output}
    file = base64.b64encode(code.encode()).decode()
    return {"config": json.dumps(config), "file:1/model.py": file}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"lmi-backend-key": ""},
        {"lmi-backend-key": "0" * 64},
        {"triton-grpc-protocol-lmi-backend-key": "0" * 64},
        # What a page of another site can send without asking first.
        {"Content-Type": "text/plain", "Origin": "http://evil.test", "Host": "evil.test"},
        # Triton's Vertex AI front end would pass this on.
        {"X-Vertex-Ai-Triton-Redirect": "v2/repository/models/evil/load"},
    ],
    ids=lambda headers: "+".join(headers) or "none",
)
@pytest.mark.parametrize("path", SPELLINGS)
def test_over_http(attacked: Served, tmp_path: Path, headers: dict[str, str], path: str) -> None:
    marker = tmp_path / "ran"
    status, _ = attacked.post(path, {"parameters": _evil(marker)}, headers)
    assert status in (400, 403, 404)
    assert not marker.exists()


@pytest.mark.parametrize("metadata", [{}, {"triton-grpc-protocol-lmi-backend-key": "0" * 64}])
def test_over_grpc(attacked: Served, tmp_path: Path, metadata: dict[str, str]) -> None:
    marker = tmp_path / "ran"
    parameters = _evil(marker)
    code = base64.b64decode(parameters["file:1/model.py"])
    with (
        tritonclient.grpc.InferenceServerClient(attacked.grpc) as client,
        pytest.raises(InferenceServerException, match="restricted, expecting header"),
    ):
        client.load_model(
            "evil", metadata, config=parameters["config"], files={"file:1/model.py": code}
        )
    assert not marker.exists()


def test_nothing_listens_but_four_ports(attacked: Served) -> None:
    """Neither SageMaker's nor Vertex AI's, which know nothing of restrictions."""
    connections = (each for process in attacked.family() for each in process.net_connections("tcp"))
    listening = {each.laddr for each in connections if each.status == psutil.CONN_LISTEN}
    assert {port for _, port in listening} == {
        attacked.port, attacked.http_port, attacked.grpc_port, attacked.metrics_port
    }  # fmt: skip
    assert {host.removeprefix("::ffff:") for host, _ in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("action", ["load", "unload"])
def test_a_client_neither_unloads_nor_configures_a_model(attacked: Served, action: str) -> None:
    """A load may also replace the configuration, and read other folders by it."""
    status, answer = attacked.post(f"/v2/repository/models/echo/{action}", {})
    assert (status, "expecting header" in answer["error"]) == (403, True)
    assert attacked.generate("echo", {"inputs": "a"})[0] == 200


def test_the_attack_works_where_the_operator_opens_the_api(
    opened: tuple[Served, str], tmp_path: Path
) -> None:
    """Else the tests above could pass for another reason."""
    marker = tmp_path / "ran"
    opened[0].post(LOAD, {"parameters": _evil(marker)})
    assert marker.exists()
