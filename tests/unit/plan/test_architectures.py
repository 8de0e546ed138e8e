"""Which architectures an installed engine has code for."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.signature import recorded_signature
from lmi_backend.plan.architectures import has_no_code, served_as
from lmi_backend.sizing.model_facts import read_model_facts
from tests.unit.sizing.test_model_facts import LLAMA_3_8B


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter with a Transformers library of one model."""
    models = tmp_path / "transformers" / "models" / "other"
    models.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (models / "modeling_other.py").write_text("class OtherForCausalLM(Base):\n    pass\n")
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    return str(interpreter)


@pytest.mark.parametrize(
    ("name", "line", "is_unknown"),
    [
        ("NewForCausalLM", "", True),
        ("NewForConditionalGeneration", "", True),
        ("NewModel", "", True),
        ("LlamaForCausalLM", "", False),
        # It is converted.
        ("LlamaForTokenClassification", "", False),
        ("OtherForCausalLM", "", False),
        ("NewForCausalLM", "option.trust_remote_code=true", False),
        ("NewForCausalLM", "option.model_impl=transformers", False),
        ("Unusual", "", False),
        ("", "", False),
    ],
)
def test_one_that_nobody_has_code_for(name: str, line: str, is_unknown: bool, python: str) -> None:
    options = resolve_options(
        parse_properties(f"option.rolling_batch=vllm\n{line}"), {}, folder=Path()
    )
    recorded = recorded_signature("vllm")
    assert recorded
    known = replace(recorded, models=frozenset({"LlamaForCausalLM"}), is_recorded=False)
    assert has_no_code(options, known, [name], python) == is_unknown
    assert not has_no_code(options, recorded, [name], python)
    assert not has_no_code(options, known, [name], "/no/python")
    assert not has_no_code(options, replace(known, plugins=("more",)), [name], python)


def _verifier(**fields: object) -> dict[str, object]:
    return {"architectures": ["ZebraDraftModel"], "speculators_config": {"verifier": fields}}


@pytest.mark.parametrize(
    ("fields", "name", "is_unknown"),
    [
        ({"architectures": ["NewForCausalLM"]}, "NewForCausalLM", True),
        ({"architectures": ["NewForCausalLM", "LlamaForCausalLM"]}, "LlamaForCausalLM", False),
        ({"architectures": ["NewForCausalLM", "OtherForCausalLM"]}, "NewForCausalLM", False),
        ({"architectures": ["NewForCausalLM", "NewerForCausalLM"]}, "NewForCausalLM", True),
        # vLLM serves the model that a speculator drafts for.
        (_verifier(architectures=["LlamaForCausalLM"]), "LlamaForCausalLM", False),
        (_verifier(name_or_path="org/model"), "", False),
        (_verifier(architectures=["NewForCausalLM"]), "NewForCausalLM", True),
    ],
)
def test_code_for_one_of_several_names_is_enough(
    fields: Mapping[str, object], name: str, is_unknown: bool, python: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B | fields))
    facts, recorded = read_model_facts(tmp_path), recorded_signature("vllm")
    assert facts
    assert recorded
    options = resolve_options(parse_properties("option.rolling_batch=vllm"), {}, folder=Path())
    known = replace(recorded, models=frozenset({"LlamaForCausalLM"}), is_recorded=False)
    names = facts.served_architectures
    assert served_as(names, known) == name
    assert has_no_code(options, known, names, python) == is_unknown
