import importlib.util
from dataclasses import replace

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.registry import create_engine
from lmi_backend.errors import ConfigurationError, OptionError
from lmi_backend.options.spec import SPECS, implementations

CONFIG = EngineConfig(model="")


TARGETS = {
    target
    for each in implementations().values()
    for target in (each.engine, each.follower)
    if target
}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_name_leads_to_a_module(target: str) -> None:
    module, _, name = target.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as source:
        assert f"\nclass {name}" in source.read()


def test_an_unknown_engine_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"engine .tnx. is unknown; known: .*echo.*vllm"):
        create_engine("tnx", CONFIG)


def test_an_engine_that_is_not_installed_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(
        SPECS["echo"].implementation, name="absent", engine="no_such_library.engine:Engine"
    )
    monkeypatch.setitem(SPECS, "absent", replace(SPECS["echo"], implementation=absent))
    with pytest.raises(ConfigurationError, match=r"no_such_library.*option\.pythonExecutable"):
        create_engine("absent", CONFIG)


@pytest.mark.parametrize(
    ("name", "text"), [("token_seconds", "soon"), ("block_size", "16"), ("max_model_len", "1.5")]
)
def test_echo_refuses_what_it_cannot_read(name: str, text: str) -> None:
    with pytest.raises(OptionError) as refusal:
        create_engine("echo", EngineConfig(model="", passthrough={name: text}))
    assert refusal.value.option == f"option.{name}"
    assert "accepted: token_seconds, start_seconds, max_model_len" in str(refusal.value)
