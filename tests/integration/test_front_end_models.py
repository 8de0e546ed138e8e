"""DJLServing's management of models, over Triton's model control, as real clients use it."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.repository.restricted_apis import HEADER
from tests.support.harm.attackers import ECHO
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, front_end, serve, write_properties

CLIENT = {"authorization": "Bearer client-key"}
BOSS = {"authorization": "Bearer boss-key"}
BODY = {"inputs": "a b", "parameters": {"max_new_tokens": 2}}
NO_MEMORY = """
class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo` is loaded; `other`, `broken` and `large` are in the repository too."""
    folder = tmp_path_factory.mktemp("managed")
    keys = folder / "keys"
    keys.write_text(
        f"client {hash_of('client-key')}\nboss {hash_of('boss-key')} operator\n", encoding="utf-8"
    )
    repository = folder / "models"
    options = (f"--api-keys={keys}", f"--model-repository={repository}")
    control = f"--control-key={folder / 'control.key'}"
    echo = write_properties(folder / "echo", ECHO)
    with serve([echo], folder, *options, control, "--clients=infer") as server:
        copy(repository, "other")
        nowhere = {"option.rolling_batch": "vllm", "option.model_id": "/nowhere"}
        write_properties(copy(repository, "broken"), nowhere)
        (copy(repository, "large") / "1" / "model.py").write_text(NO_MEMORY, encoding="utf-8")
        wait_for(lambda: server.ask("/ping")[0] == 200)
        yield server


def test_the_greeting_is_a_command_that_works_with_a_key(served: Served) -> None:
    command = served.greeting.splitlines()[-1]
    environment = os.environ | {"LMI_API_KEY": "client-key"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=environment)
    assert "generated_text" in json.loads(done.stdout)


def copy(repository: Path, name: str) -> Path:
    folder = Path(shutil.copytree(repository / "echo", repository / name))
    config = folder / "config.pbtxt"
    text = config.read_text("utf-8").replace('name: "echo"', f'name: "{name}"')
    config.write_text(text, encoding="utf-8")
    return folder


def manage(
    server: Served, method: str, path: str, body: Any = None, key: dict[str, str] = BOSS
) -> tuple[int, Any]:
    status, headers, data = server.ask(path, body, key, method)
    assert headers["content-type"] == "application/json"
    return status, json.loads(data)


def rows(server: Served) -> dict[str, str]:
    status, answer = manage(server, "GET", "/models")
    assert status == 200
    assert all(each["modelUrl"] == each["modelName"] for each in answer["models"])
    return {each["modelName"]: each["status"] for each in answer["models"]}


def test_a_model_is_loaded_asked_and_unloaded(served: Served) -> None:
    assert rows(served) == {"echo": "READY", "echo_infer": "READY"}
    assert manage(served, "GET", "/models/other")[0] == 404
    body = {"model_name": "other", "url": "other"}
    assert manage(served, "POST", "/models", body) == (200, {"status": 'Model "other" registered.'})
    assert rows(served)["other"] == "READY"
    # At once: who has loaded a model asks it.
    status, answer = manage(served, "POST", "/models/other/invoke", BODY, CLIENT)
    assert (status, "generated_text" in answer) == (200, True)
    assert manage(served, "POST", "/models", body)[0] == 409
    assert manage(served, "POST", "/models?url=other")[0] == 409
    assert manage(served, "DELETE", "/models/other") == (
        200,
        {"status": 'Model or workflow "other" unregistered'},
    )
    assert "other" not in rows(served)
    assert manage(served, "DELETE", "/models/other")[0] == 404
    wait_for(lambda: served.ask("/models/other/invoke", BODY, CLIENT)[0] == 404)
    # DJLServing's own form, and at once again.
    assert manage(served, "POST", "/models?url=other&model_name=other")[0] == 200
    assert manage(served, "DELETE", "/models/other")[0] == 200


def test_a_load_that_nobody_waits_for(served: Served) -> None:
    status, answer = manage(served, "POST", "/models?url=other&synchronous=false")
    assert (status, answer["status"]) == (202, 'Model "other" registration scheduled.')
    wait_for(lambda: rows(served).get("other") == "READY")
    assert manage(served, "DELETE", "/models/other")[0] == 200


def test_a_model_is_described(served: Served) -> None:
    status, answer = manage(served, "GET", "/models/echo")
    assert status == 200
    (workflow,) = answer
    (model,) = workflow["models"]
    assert (workflow["workflowName"], model["modelName"]) == ("echo", "echo")
    assert (model["status"], model["requestInQueue"]) == ("Healthy", 0)
    (group,) = model["workerGroups"]
    workers = [{"id": 1, "status": "READY"}]
    assert group == {"minWorkers": 1, "maxWorkers": 1, "workers": workers}
    # It has no workers of its own.
    (alias,) = manage(served, "GET", "/models/echo_infer")[1][0]["models"]
    assert alias == {"modelName": "echo_infer", "modelUrl": "echo_infer", "status": "Healthy"}


def test_what_cannot_be_loaded_says_why(served: Served) -> None:
    status, answer = manage(served, "POST", "/models", {"model_name": "broken"})
    assert (status, "option.model_id=/nowhere is not a folder" in answer["error"]) == (500, True)
    assert ".py" not in answer["error"]
    status, answer = manage(served, "POST", "/models", {"model_name": "large"})
    assert (status, "CUDA out of memory" in answer["error"]) == (507, True)
    assert (rows(served)["broken"], rows(served)["large"]) == ("FAILED", "FAILED")
    assert manage(served, "DELETE", "/models/broken")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/models", {"model_name": "none"}, 404, "accepted: the models of the server's"),
        ("POST", "/models", {"url": "s3://bucket/m"}, 400, "nothing is fetched"),
        ("POST", "/models", {"url": "/opt/m", "model_name": "other"}, 400, "url=/opt/m: nothing"),
        ("POST", "/models?url=file:///etc&model_name=other", b"", 400, "nothing is fetched"),
        ("POST", "/models?url=../other", b"", 400, "nothing is fetched"),
        ("POST", "/models?url=other&engine=Python", b"", 400, "engine is not taken; accepted: url"),
        ("POST", "/models?url=other&synchronous=no", b"", 400, "accepted: true, false"),
        ("POST", "/models", {"model_name": ["other"]}, 400, "model_name is not a text"),
        ("POST", "/models", {"url": True}, 400, "url is not a text"),
        ("POST", "/models", {}, 400, "model_name is missing"),
        ("POST", "/models", b"[1", 400, ""),
        ("GET", "/models?limit=x", None, 400, "limit=x; accepted: a whole number"),
        ("PUT", "/models/echo?min_worker=2", b"", 405, "PUT is not served here"),
    ],
)
def test_what_is_not_done_is_refused(
    served: Served, method: str, path: str, body: Any, status: int, message: str
) -> None:
    got, answer = manage(served, method, path, body)
    assert (got, message in json.dumps(answer)) == (status, True), answer
    assert set(rows(served)) >= {"echo", "echo_infer"}
    assert "other" not in rows(served)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/models"), ("POST", "/models?url=other"), ("GET", "/models/echo"),
        ("DELETE", "/models/echo"),
    ],
)  # fmt: skip
def test_only_operators_manage(served: Served, method: str, path: str) -> None:
    body = b"" if method == "POST" else None
    assert manage(served, method, path, body, CLIENT)[0] == 403
    assert manage(served, method, path, body, {})[0] == 401
    # A page of another site, in an operator's browser; a name that another gave this address.
    assert manage(served, method, path, body, BOSS | {"origin": "http://evil.example"})[0] == 403
    assert manage(served, method, path, body, BOSS | {"host": "evil.example"})[0] == 403
    assert rows(served)["echo"] == "READY"


@pytest.mark.parametrize("has_key", [True, False])
def test_beside_a_server_of_your_own_a_file_has_the_key(
    served: Served, tmp_path: Path, has_key: bool
) -> None:
    """Without API keys too, as nobody else reaches the port."""
    options = [f"--triton-url=http://{served.http}", f"--run-folder={tmp_path}"]
    options += [f"--control-key={served.control_key}"] if has_key else []
    with front_end(tmp_path, *options) as beside:
        status, answer = manage(beside, "GET", "/models", key={})
        assert status == (200 if has_key else 501)
        assert ("models" in answer) is has_key
        assert has_key or "--control-key FILE" in answer["error"]
        assert manage(beside, "GET", "/models", key={"host": "evil.example"})[0] == 403
        # What a client sends of Triton's key is not looked at.
        key = {HEADER: served.control_key.read_text(encoding="ascii").strip()}
        assert has_key or manage(beside, "GET", "/models", key=key)[0] == 501
