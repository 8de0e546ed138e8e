"""What is put into an engine, and left out for an option of its user's."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.starting import attach
from lmi_backend.ipc.engine import fast_path_state


def engine(endpoint: str | None) -> Any:
    """An engine that counts each output."""
    observability = SimpleNamespace(otlp_traces_endpoint=endpoint)
    return SimpleNamespace(
        vllm_config=SimpleNamespace(observability_config=observability),
        output_processor=SimpleNamespace(log_stats=True, process_outputs=lambda outputs: outputs),
        logger_manager=None,
        log_stats=True,
    )


@pytest.mark.parametrize(
    ("chosen", "endpoint", "state", "reason"),
    [
        ("fewer_counts", None, "chosen", "turns fewer_counts off, with which it goes"),
        ("new_tokens", None, "chosen", fast_paths.CHOSEN),
        ("", "http://collector", "chosen", "otlp_traces_endpoint has vLLM count each output"),
        # This interpreter has no vLLM: something else than an option turns it off.
        ("", None, "public", "vLLM is not installed"),
    ],
)
def test_what_goes_with_an_option_is_said_without_a_warning(
    chosen: str, endpoint: str | None, state: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    fast_paths.choose(chosen)
    attach(engine(endpoint))
    came = fast_paths.states()["new_tokens"]
    assert fast_path_state(came) == state
    assert reason in came
