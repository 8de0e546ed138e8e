"""Each client's own paths and errors, of a server with two engines."""

import json
from typing import Any

import pytest

from tests.clients.conftest import KEY
from tests.support.servers.serving import Served

KEYED = {"authorization": f"Bearer {KEY}"}
TEXT = "The capital of Italy is"
ASKED = [{"role": "user", "content": TEXT}]


def _ask(served: Served, path: str, body: Any, model: str) -> tuple[int, Any]:
    target = {"x-amzn-sagemaker-target-model": model}
    status, _, data = served.ask(path, body, KEYED | target)
    return status, json.loads(data)


@pytest.mark.parametrize("model", ["tiny", "small"])
def test_tokens_of_text_generation_inference_have_their_places(served: Served, model: str) -> None:
    status, tokens = _ask(served, "/tokenize", {"inputs": TEXT}, model)
    assert status == 200
    assert [TEXT[t["start"] : t["stop"]] for t in tokens] == [t["text"] for t in tokens]
    assert "".join(token["text"] for token in tokens) == TEXT
    status, answer = _ask(served, "/chat_tokenize", {"messages": ASKED}, model)
    assert (status, TEXT in answer["templated_text"]) == (200, True)
    texts = [token["text"] for token in answer["tokenize_response"]]
    assert "".join(texts) == answer["templated_text"]
    status, answer = _ask(served, "/tokenize", {"inputs": 1}, model)
    assert (status, answer["error_type"]) == (422, "validation")


def test_vllms_own_way_of_the_same_path_stays(served: Served) -> None:
    status, answer = _ask(served, "/tokenize", {"model": "tiny", "prompt": TEXT}, "tiny")
    assert (status, answer["count"]) == (200, len(answer["tokens"]))
    status, answer = _ask(served, "/tokenize", {"model": "tiny", "messages": ASKED}, "tiny")
    assert (status, answer["count"]) == (200, len(answer["tokens"]))


@pytest.mark.parametrize(
    ("path", "asked", "status", "kind"),
    [
        ("/classify", {"input": "a"}, 404, "NotFoundError"),
        ("/v1/completions", {"prompt": {"a": 1}}, 400, "BadRequestError"),
        ("/v1/chat/completions", {"messages": ASKED, "top_logprobs": 2}, 400, "BadRequestError"),
    ],
)
@pytest.mark.parametrize("model", ["tiny", "small"])
def test_openais_clients_read_the_type_of_every_refusal(
    served: Served, model: str, path: str, asked: dict[str, Any], status: int, kind: str
) -> None:
    got, answer = _ask(served, path, asked | {"model": model}, model)
    assert (got, answer["error"]["type"], answer["error"]["code"]) == (status, kind, status)


def test_all_of_an_earlier_answer_reaches_the_model(served: Served) -> None:
    def count(*texts: str) -> tuple[int, int]:
        parts = [{"type": "output_text", "text": text} for text in texts]
        earlier = {"type": "message", "role": "assistant", "content": parts}
        asked = {"input": [*ASKED, earlier, *ASKED], "max_output_tokens": 1}
        status, answer = _ask(served, "/v1/responses", {"model": "tiny"} | asked, "tiny")
        return status, answer["usage"]["input_tokens"]

    assert count("It is Rome.", "Or Milan.") == count("It is Rome.\nOr Milan.")
    assert count() == count("")


@pytest.mark.parametrize(
    ("kind", "status"), [("web_search", 200), ("file_search", 400), ("mcp", 400)]
)
def test_a_tool_that_nobody_runs_is_refused_unless_agents_always_offer_it(
    served: Served, kind: str, status: int
) -> None:
    tools = [{"type": "function", "name": "f", "parameters": {}}, {"type": kind}]
    asked = {"model": "tiny", "input": TEXT, "tools": tools, "max_output_tokens": 1}
    assert _ask(served, "/v1/responses", asked, "tiny")[0] == status
