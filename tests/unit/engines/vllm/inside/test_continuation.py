"""How a request of vLLM's could be resumed."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.continuation import resume_strategy_of

SAMPLED: dict[str, Any] = {"n": 1, "output_kind": "delta", "temperature": 1.0, "seed": None}


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {"forced_tokens": "there is no core"})
    monkeypatch.setitem(vars(names), "RequestOutputKind", SimpleNamespace(DELTA="delta"))


def way(*, is_marking: bool = False, **params: Any) -> str:
    config = SimpleNamespace(watermark_config=object() if is_marking else None)
    engine = SimpleNamespace(vllm_config=config, model_config=SimpleNamespace())
    return resume_strategy_of(engine, SimpleNamespace(**SAMPLED | params))


@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        ({}, "from the prompt"),
        ({"frequency_penalty": 0.5}, ""),
        ({"frequency_penalty": 0.5, "seed": 7}, "from the start"),
        # vLLM 0.30 and 0.31 have this in each request, 0.32 has None there.
        ({"watermarking": True}, "from the prompt"),
        ({"watermarking": None}, "from the prompt"),
        ({"watermarking": False, "is_marking": True}, "from the prompt"),
        ({"watermarking": True, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True, "temperature": 0.0}, "from the start"),
    ],
)
def test_the_way_of_a_request(params: dict[str, Any], resumes: str) -> None:
    assert way(**params) == resumes
