"""A vLLM without a tokenizer: it takes token ids and gives token ids."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.generation import GenerateRequest, Sampling
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


def test_ids_are_answered_and_text_is_refused(engine: Any) -> None:
    whole = engine.submit([GenerateRequest(PROMPT, GREEDY, stream=False, logprobs=1)]).wait()
    assert whole.error is None
    ids = [token.id for each in whole.deltas for token in each.tokens]
    assert len(ids) == 8
    streamed = engine.submit([GenerateRequest(PROMPT, GREEDY, logprobs=1)]).wait()
    assert [token.id for each in streamed.deltas for token in each.tokens] == ids
    assert sum(each.num_tokens for each in streamed.deltas) == 8
    body = {"prompt": list(PROMPT), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    _, answer = engine.post("/v1/completions", body | {"return_token_ids": True}).answer
    assert answer["choices"][0]["token_ids"] == ids
    refused = engine.submit([GenerateRequest("text", GREEDY)]).wait()
    assert "the model has no tokenizer (option.skip_tokenizer_init)" in str(refused.error)
    sink = engine.post(ENCODE_PATH, {"text": "text"})
    assert (sink.data, sink.deltas[0].status) == ("the model has no tokenizer", 404)


def test_no_fast_path_is_lost(engine: Any) -> None:
    (worker,) = engine.service.snapshot().workers
    assert {name: why for name, why, _ in worker.stats.fast_paths if why} == {}
