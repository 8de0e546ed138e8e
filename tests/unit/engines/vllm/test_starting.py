"""What is put into an engine, left out for an option of its user's, and found by its processes."""

import os
import sys
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths, starting
from lmi_backend.engines.vllm.processor import OwnAnswers
from lmi_backend.engines.vllm.starting import attach
from lmi_backend.ipc.engine import fast_path_state
from tests.unit.engines.vllm.vllm_engine import AsyncLLM

pytestmark = pytest.mark.usefixtures("vllm")


def engine(endpoint: str | None) -> Any:
    """An engine that counts each output."""
    found: Any = AsyncLLM(is_attached=False)
    observability = SimpleNamespace(otlp_traces_endpoint=endpoint)
    found.vllm_config = SimpleNamespace(observability_config=observability)
    found.log_stats = found.output_processor.log_stats = True
    return found


@pytest.mark.parametrize(
    ("is_fast", "endpoint", "reason"),
    [
        (False, None, fast_paths.CHOSEN),
        (True, "http://collector", "otlp_traces_endpoint has vLLM count each output"),
        (True, None, ""),
    ],
)
def test_what_goes_with_an_option_is_said_without_a_warning(
    is_fast: bool, endpoint: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    fast_paths.choose(is_fast)
    found = engine(endpoint)
    attach(found)
    # Requests resume by it too.
    assert isinstance(found.output_processor, OwnAnswers)
    came = fast_paths.reason_of("own_streams")
    assert fast_path_state(came) == ("chosen" if reason else "private")
    assert reason in came


def test_without_an_output_processor_of_ours_vllm_answers_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    found = engine(None)
    found.output_processor.request_states["a"] = None
    attach(found)
    assert not isinstance(found.output_processor, OwnAnswers)
    assert not fast_paths.is_on("resumption")
    assert fast_path_state(fast_paths.reason_of("own_streams")) == "public"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


def test_they_are_found_by_vllms_words() -> None:
    for name, group, entry in (
        ("each_process", "vllm.general_plugins", "lmi-backend"),
        ("forced_tokens", "vllm.logits_processors", "lmi-backend"),
    ):
        assert entry not in [each.name for each in entry_points(group=group)]
        starting.install_plugin(name)
        assert [each.name for each in entry_points(group=group)].count(entry) == 1


@pytest.mark.parametrize(
    ("listed", "then"),
    [(None, None), ("", ",lmi-backend"), ("mine", "mine,lmi-backend")],
)
def test_a_users_list_of_plugins_has_ours_too(
    monkeypatch: pytest.MonkeyPatch, listed: str | None, then: str | None
) -> None:
    if listed is not None:
        monkeypatch.setenv("VLLM_PLUGINS", listed)
    starting.install_plugin("each_process")
    starting.install_plugin("forced_tokens")
    assert os.environ.get("VLLM_PLUGINS") == then
