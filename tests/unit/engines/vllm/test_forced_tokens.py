"""The plugin in vLLM's cores: what fails there ends no core, and forces no token."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths, names, resume


class Runner:
    """vLLM's class of processors, as its first runner calls it."""

    def __init__(self, *given: Any) -> None:
        self.requests: list[Any] = []

    def update_state(self, update: Any) -> None:
        self.requests.append(update.request)

    def apply(self, logits: Any) -> Any:
        for request in self.requests:
            logits = request([], logits)
        return logits


class Row(list[float]):
    """One row of logits."""

    def fill_(self, value: float) -> None:
        self[:] = [value] * len(self)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "AdapterLogitsProcessor", Runner)
    monkeypatch.setitem(vars(names), "LogitsProcessor", None)
    monkeypatch.setattr(resume, "forced_tokens", resume.forced_tokens.__wrapped__)
    return resume


def parameters(*ids: int) -> Any:
    params = SimpleNamespace(extra_args=None)
    params.extra_args = resume.forced_args(params, ids)
    return params


def first(module: ModuleType) -> Any:
    plugin = module.ForcedTokens(None, "cpu", False)
    plugin.update_state(SimpleNamespace(request=plugin.new_req_logits_processor(parameters(1))))
    return plugin


def test_a_token_is_forced(module: ModuleType) -> None:
    assert first(module).apply(Row([3.0, 2.0])) == [float("-inf"), 0.0]
    assert fast_paths.is_on("forced_tokens")


def broken_update(plugin: Any) -> None:
    plugin.update_state(SimpleNamespace())


def broken_parameters(plugin: Any) -> None:
    assert plugin.new_req_logits_processor(SimpleNamespace()) is None
    assert plugin.add_request(0, SimpleNamespace()) is False


def broken_logits(plugin: Any) -> None:
    assert plugin.apply("no logits") == "no logits"


def broken_context(plugin: Any) -> None:
    plugin.add_request(0, parameters(1))
    assert plugin.apply("no logits", SimpleNamespace()) == "no logits"


@pytest.mark.parametrize("fails", [broken_update, broken_parameters, broken_logits, broken_context])
def test_what_fails_is_let_go_and_forces_nothing_from_then_on(
    fails: Any, module: ModuleType
) -> None:
    plugin = first(module)
    fails(plugin)
    assert "Error" in fast_paths.reason_of("forced_tokens")
    assert plugin.apply(Row([3.0, 2.0])) == [3.0, 2.0]


def test_one_that_cannot_be_made_leaves_the_core_alone(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "__init__", lambda _: None)
    plugin = module.ForcedTokens(None, "cpu", False)
    assert not fast_paths.is_on("forced_tokens")
    assert plugin.new_req_logits_processor(parameters(1)) is not None
    assert plugin.apply(Row([3.0, 2.0])) == [3.0, 2.0]
