"""Names of vLLM are found wherever a release has them."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from lmi_backend.engines.vllm import names


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Load a module of a vLLM that has these names."""
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))

    def load(name: str, **members: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return load


def test_the_newest_place_that_has_a_name_is_taken(loaded: Callable[..., ModuleType]) -> None:
    older, newest = "vllm.entrypoints.openai.cli_args", "vllm.entrypoints.launchers.cli_args"
    loaded("vllm.entrypoints"), loaded("vllm.entrypoints.openai")
    loaded(older, make_arg_parser="older")
    assert names.find("make_arg_parser") == "older"
    loaded("vllm.entrypoints.launchers"), loaded(newest, make_arg_parser="newest")
    assert names.find("make_arg_parser") == "newest"


def test_a_class_that_has_moved_is_found_where_it_is_defined(
    loaded: Callable[..., ModuleType],
) -> None:
    class EngineCoreOutputs:
        __module__ = "vllm.moved"

    loaded("vllm.using", EngineCoreOutputs=EngineCoreOutputs)
    with pytest.raises(
        names.MissingNameError, match="vLLM's EngineCoreOutputs cannot be imported: "
    ):
        names.find("EngineCoreOutputs")
    loaded("vllm.moved", EngineCoreOutputs=EngineCoreOutputs)
    assert names.find("EngineCoreOutputs") is EngineCoreOutputs


def test_what_another_thing_stands_in_for_is_not_looked_for(
    loaded: Callable[..., ModuleType],
) -> None:
    """Without a second model runner, the first one's class is not the second one's."""

    class LogitsProcessor:
        __module__ = "vllm.v1.sample.logits_processor"

    loaded(LogitsProcessor.__module__, LogitsProcessor=LogitsProcessor)
    assert names.find("LogitsProcessor") is None
