"""One library compiles all structured outputs of an engine, whatever its first request is."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import grammars, names


def _engine(name: str = "structured_outputs_config", **config: Any) -> SimpleNamespace:
    return SimpleNamespace(vllm_config=SimpleNamespace(**{name: SimpleNamespace(**config)}))


@pytest.mark.parametrize("name", ["structured_outputs_config", "decoding_config"])
def test_a_choice_left_open_is_made_when_the_engine_starts(name: str) -> None:
    engine = _engine(name, backend="auto")
    assert grammars.choose_backend(engine, None) == "xgrammar"
    assert getattr(engine.vllm_config, name).backend == "xgrammar"


@pytest.mark.parametrize("given", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_a_users_choice_stays(given: str) -> None:
    engine = _engine(backend=f"{given}:no-fallback")
    assert grammars.choose_backend(engine, None) == given
    assert engine.vllm_config.structured_outputs_config.backend == f"{given}:no-fallback"


@pytest.mark.parametrize(
    ("guidance", "tekken", "chosen"),
    [
        (SimpleNamespace(is_tokenizer_supported=lambda _: True), True, "guidance"),
        (SimpleNamespace(is_tokenizer_supported=lambda _: False), True, "xgrammar"),
        (SimpleNamespace(is_tokenizer_supported=lambda _: True), False, "xgrammar"),
        (None, True, "xgrammar"),
        (SimpleNamespace(), True, "xgrammar"),
    ],
)
def test_tekken_has_the_library_of_its_tool_grammars(
    monkeypatch: pytest.MonkeyPatch, guidance: Any, tekken: bool, chosen: str
) -> None:
    monkeypatch.setitem(vars(names), "GuidanceBackend", guidance)
    tokenizer = SimpleNamespace(is_tekken=tekken)
    assert grammars.choose_backend(_engine(backend="auto"), tokenizer) == chosen


class _Frozen:
    __slots__ = ()
    backend = "auto"


@pytest.mark.parametrize(
    "config",
    [
        SimpleNamespace(),
        SimpleNamespace(structured_outputs_config=SimpleNamespace()),
        SimpleNamespace(structured_outputs_config=_Frozen()),
    ],
)
def test_a_vllm_that_cannot_be_held_to_one_keeps_its_own_way_and_it_is_logged(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        chosen = grammars.choose_backend(SimpleNamespace(vllm_config=config), None)
    assert chosen == grammars.AUTO
    assert "vLLM keeps its own choice for structured outputs" in caplog.text


def test_a_release_may_read_a_structure_out_of_all_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = SimpleNamespace(name="REGEX")
    read = lambda params: (kind, params.structured_outputs.regex)  # noqa: E731  0.11.0's
    monkeypatch.setitem(vars(names), "get_structured_output_key", read)
    params = SimpleNamespace(structured_outputs=SimpleNamespace(regex="a+"))
    assert grammars.structure_of(params) == ("regex", "a+")
