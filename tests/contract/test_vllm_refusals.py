"""What vLLM's engine refuses has one status, which is that of vLLM's own server, for each client.

vLLM's server is asked, around an engine that refuses each request with one of its exceptions.
"""

import json
from typing import Any, Final

import msgspec
import pytest

from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.errors import HttpError
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc.messages import Failure, error_of
from tests.contract.test_vllm_arguments import CPU, plan_of
from tests.support.run.places import SCRIPTS, TINY

RETRIED: Final = (429, 503)
OTHERS: Final = {
    "lmi": {400: 424, 500: 424},
    "tgi": {400: 422},
    "sagemaker": dict.fromkeys((400, 404, 409, 422, 500), 424),
}
"""How a client has a status that is no other server's."""


@pytest.fixture(scope="module")
def refusals(vllm_interpreter: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = {"option.model_id": str(TINY / "llama"), "option.dtype": "fp32"}
    config = plan_of(settings, CPU, tmp_path_factory.mktemp("model"))
    script = str(SCRIPTS / "vllm_refusals.py")
    found: dict[str, Any] = json.loads(
        vllm_interpreter.run(script, data=msgspec.json.encode(config))
    )
    return found


def read(path: str, answer: Any) -> tuple[int, str, bool]:
    """Return status, message, and whether a client is told when to try again."""
    spec = next(each for each in CLIENTS.values() if path_at(path) in each.paths)
    if answer[0] == "Failure":
        error = error_of(msgspec.convert(answer, Failure))
    else:
        (chunk,) = msgspec.convert(answer, list[HttpChunk])
        with pytest.raises(HttpError) as raised:
            spec.form().write([chunk])
        error = raised.value
    status, data, headers = spec.failure(error)
    return status, json.loads(data)["error"]["message"], "retry-after" in headers


def test_bodies_have_the_status_of_vllms_server_streamed_or_not(refusals: dict[str, Any]) -> None:
    assert {"QueueOverflowError", "RetryableRequestError"} <= refusals.keys()
    for name, (status, answers) in refusals.items():
        for asked, answer in answers.items():
            path, _, how = asked.partition(" ")
            if not how:
                continue
            found = read(path, answer)
            assert (found[0], found[2]) == (status, status in RETRIED), (name, asked)
            assert found == read(path, answers[f"{path} whole"]), (name, asked)


@pytest.mark.parametrize("client", CLIENTS)
def test_others_have_it_too(refusals: dict[str, Any], client: str) -> None:
    other = OTHERS.get(client, {})
    for name, (status, answers) in refusals.items():
        error = error_of(msgspec.convert(answers["native"], Failure))
        found, _, headers = CLIENTS[client].failure(error)
        assert found == other.get(status, status), name
        assert ("retry-after" in headers) == (status in RETRIED), name
        assert (error.code == "UNAVAILABLE") == (status in RETRIED), name
