"""A vLLM without a tokenizer: it takes token ids and gives token ids."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling
from lmi_backend.tokenization import ENCODE_PATH
from tests.support.releases import vllm_release

pytestmark = pytest.mark.skipif(
    vllm_release() < (0, 30), reason="not tried: older servers may want a tokenizer"
)
PROMPT = tuple(range(100, 120))
GREEDY = Sampling(8, 0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(start: Callable[..., Any], tiny_properties: dict[str, Any]) -> Iterator[Any]:
    with start(tiny_properties | {"option.skip_tokenizer_init": "true"}) as served:
        yield served


def body(engine: Any, path: str, **members: Any) -> tuple[int, Any]:
    sink = engine.submit(HttpRequest(path, json.dumps(members).encode())).wait()
    data = b"".join(chunk.data for chunk in sink.deltas)
    return sink.deltas[0].status, data.decode()


def test_ids_are_answered_and_text_is_refused(engine: Any) -> None:
    whole = engine.submit([GenerateRequest(PROMPT, GREEDY, stream=False, logprobs=1)]).wait()
    assert whole.error is None
    ids = [token.id for each in whole.deltas for token in each.tokens]
    assert len(ids) == 8
    streamed = engine.submit([GenerateRequest(PROMPT, GREEDY, logprobs=1)]).wait()
    assert [token.id for each in streamed.deltas for token in each.tokens] == ids
    assert sum(each.num_tokens for each in streamed.deltas) == 8
    status, answer = body(
        engine,
        "/v1/completions",
        prompt=list(PROMPT),
        max_tokens=8,
        temperature=0,
        ignore_eos=True,
        return_token_ids=True,
    )
    assert status == 200, answer
    assert json.loads(answer)["choices"][0]["token_ids"] == ids
    refused = engine.submit([GenerateRequest("text", GREEDY)]).wait()
    assert "the model has no tokenizer (option.skip_tokenizer_init)" in str(refused.error)
    assert body(engine, ENCODE_PATH, text="text") == (404, "the model has no tokenizer")


def test_no_fast_path_is_lost(engine: Any) -> None:
    (worker,) = engine.service.snapshot().workers
    assert {name: why for name, why, _ in worker.stats.fast_paths if why} == {}
