"""One library compiles all structured outputs of an engine, whatever its first request is."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import grammars, names


def _engine(backend: str) -> SimpleNamespace:
    config = SimpleNamespace(structured_outputs_config=SimpleNamespace(backend=backend))
    return SimpleNamespace(vllm_config=config)


@pytest.mark.parametrize("given", ["xgrammar", "guidance", "outlines", "lm-format-enforcer"])
def test_a_users_choice_stays(given: str) -> None:
    engine = _engine(f"{given}:no-fallback")
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
    assert grammars.choose_backend(_engine("auto"), tokenizer) == chosen
