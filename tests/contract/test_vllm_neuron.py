"""vLLM on a platform that a plugin brings: AWS's for Neuron, as its double has it.

To vLLM it is neither a CPU nor CUDA. So nothing of ours may take it for a CPU because it is no GPU,
or for a GPU because `is_cpu()` is false. This one has no tokenizer: it takes token ids and gives
token ids.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.tokenization import ENCODE_PATH
from tests.contract.conftest import FAKES
from tests.support.interpreter.releases import vllm_release

pytestmark = pytest.mark.skipif(
    vllm_release() < (0, 30), reason="not tried: older servers may want a tokenizer"
)
PROMPT = tuple(range(100, 120))
GREEDY = Sampling(8, 0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(start: Any, tiny_properties: dict[str, Any]) -> Iterator[Any]:
    own = {
        "option.rolling_batch": "tnx",
        "option.skip_tokenizer_init": "true",
        "option.env": "VLLM_NEURON_CPU_MODE=1,VLLM_CPU_KVCACHE_SPACE=1",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FAKES / "vllm_neuron"))
        # Its workers say by themselves how much memory of a core a cache has.
        plain = {key: value for key, value in tiny_properties.items() if "blocks" not in key}
        with start(plain | own) as harness:
            yield harness


def test_a_model_of_tnx_answers_on_the_platform_of_the_plugin(engine: Any) -> None:
    assert engine.plan.engine == "vllm-neuron"
    whole = engine.submit([GenerateRequest(PROMPT, GREEDY, stream=False, logprobs=1)]).wait()
    assert whole.error is None
    ids = [token.id for each in whole.deltas for token in each.tokens]
    assert len(ids) == 8
    streams = [engine.submit([GenerateRequest(PROMPT, GREEDY, logprobs=1)]) for _ in range(8)]
    for each in streams:
        deltas = each.wait().deltas
        assert [token.id for delta in deltas for token in delta.tokens] == ids
        assert sum(delta.num_tokens for delta in deltas) == 8
    body = {"prompt": list(PROMPT), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    _, answer = engine.post("/v1/completions", body | {"return_token_ids": True}).answer
    assert answer["choices"][0]["token_ids"] == ids


def test_text_is_refused_without_a_tokenizer(engine: Any) -> None:
    refused = engine.submit([GenerateRequest("text", GREEDY)]).wait()
    assert "the model has no tokenizer (option.skip_tokenizer_init)" in str(refused.error)
    sink = engine.post(ENCODE_PATH, {"text": "text"})
    assert (sink.data, sink.deltas[0].status) == ("the model has no tokenizer", 404)


def test_no_fast_path_is_lost(engine: Any) -> None:
    (worker,) = engine.service.snapshot().workers
    assert {name: why for name, why, _ in worker.stats.fast_paths if why} == {}


def test_its_core_leaves_the_work_to_the_workers_of_the_platform(engine: Any) -> None:
    """A core of the CPU's computes by itself here, which only vLLM's own platform can."""
    family = engine.workers[0].children(recursive=True)
    names = [" ".join(each.cmdline()) for each in family]
    assert [name for name in names if "EngineCore" in name]
    assert [name for name in names if "Worker" in name]
