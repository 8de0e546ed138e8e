"""vLLM on a platform that a plugin brings: AWS's for Neuron, as its double has it.

To vLLM it is neither a CPU nor CUDA. So nothing of ours may take it for a CPU because it is no GPU,
or for a GPU because `is_cpu()` is false.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.generation import GenerateRequest, Sampling
from tests.contract.conftest import FAKES

PROMPT = "Count to one hundred:"


@pytest.fixture(scope="module")
def engine(start: Any, tiny_properties: dict[str, Any]) -> Iterator[Any]:
    own = {
        "option.rolling_batch": "tnx",
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
    whole = engine.submit([GenerateRequest(PROMPT, Sampling(16, 0.0), stream=False)]).wait()
    streams = [engine.submit([GenerateRequest(PROMPT, Sampling(16, 0.0))]) for _ in range(8)]
    assert whole.error is None
    assert [each.wait().text for each in streams] == [whole.text] * 8


def test_its_core_leaves_the_work_to_the_workers_of_the_platform(engine: Any) -> None:
    """A core of the CPU's computes by itself here, which only vLLM's own platform can."""
    family = engine.workers[0].children(recursive=True)
    names = [" ".join(each.cmdline()) for each in family]
    assert [name for name in names if "EngineCore" in name]
    assert [name for name in names if "Worker" in name]
