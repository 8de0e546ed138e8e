"""What an engine does not serve: options, splits, and architectures that it has no code for."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError, OptionError, PlanError
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table.common import ROLLING_BATCH
from lmi_backend.plan.engine_plan import EnginePlan, Launch, Parallel
from lmi_backend.plan.refusals import (
    has_no_code,
    refuse_dense_copies,
    refuse_old_engine,
    refuse_unserved,
    refuse_unsupported,
    served_as,
)
from lmi_backend.sizing.model_facts import read_model_facts
from tests.support.packages.installed_engine import interpreter, script, with_version
from tests.support.records.facts import with_fields
from tests.support.records.plans import options_of
from tests.support.run.places import TESTS
from tests.unit.plan.test_strategy import LLAMA_70B
from tests.unit.sizing.test_model_facts import LLAMA_3_8B


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter with a Transformers library of one model."""
    models = tmp_path / "transformers" / "models" / "other"
    models.mkdir(parents=True)
    (tmp_path / "transformers" / "__init__.py").touch()
    (models / "modeling_other.py").write_text("class OtherForCausalLM(Base):\n    pass\n")
    return script(tmp_path / "python", f'PYTHONPATH={tmp_path} exec "{sys.executable}" "$@"')


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
    options = options_of(f"option.rolling_batch=vllm\n{line}")
    recorded = recorded_signature("vllm")
    assert recorded
    known = replace(recorded, models=frozenset({"LlamaForCausalLM"}), is_recorded=False)
    assert has_no_code(options, known, [name], python) == is_unknown
    assert not has_no_code(options, recorded, [name], python)
    assert not has_no_code(options, known, [name], "/no/python")
    assert not has_no_code(options, replace(known, has_plugins=True), [name], python)


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
    options = options_of("option.rolling_batch=vllm")
    known = replace(recorded, models=frozenset({"LlamaForCausalLM"}), is_recorded=False)
    names = facts.shape.served_architectures
    assert served_as(names, known) == name
    assert has_no_code(options, known, names, python) == is_unknown


CONFIG = EngineConfig(model="m")
LAUNCH = Launch(python="/p")


def test_mpi_mode_without_mpirun_is_planned_but_not_started() -> None:
    parallel = Parallel(mode="mpi")
    plan = EnginePlan(engine="vllm", config=CONFIG, launch=LAUNCH, parallel=parallel)
    with pytest.raises(ConfigurationError, match="openmpi-bin"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, parallel=replace(parallel, mpirun="/usr/bin/mpirun")))


def test_several_nodes_need_mpi_or_vllm() -> None:
    parallel = Parallel(nodes=2)
    plan = EnginePlan(engine="transformers", config=CONFIG, launch=LAUNCH, parallel=parallel)
    with pytest.raises(ConfigurationError, match="engine=MPI"):
        refuse_unserved(plan)
    refuse_unserved(replace(plan, engine="vllm"))


@pytest.mark.parametrize(
    ("engine", "package", "version", "problem"),
    [
        ("vllm", "vllm", "0.6.3.post1", "vLLM 0.6.3.post1 of .* is too old: .*; accepted: 0.11 or"),
        ("trtllm", "tensorrt_llm", "0.9.0", "TensorRT-LLM 0.9.0 of .* is too old"),
        ("vllm", "vllm", "0.11.0", ""),
        ("vllm", "vllm", "1.0", ""),
        ("vllm", "vllm", "0.1.dev1+g12ab", ""),
    ],
)
def test_a_library_that_is_too_old_is_refused_by_its_version(
    tmp_path: Path, engine: str, package: str, version: str, problem: str
) -> None:
    """Whatever else of it can be read."""
    python = interpreter(tmp_path, with_version(tmp_path / package, version))
    options = options_of(f"option.rolling_batch={engine}")
    if not problem:
        refuse_old_engine(options, python)
        return
    with pytest.raises(PlanError, match=problem):
        refuse_old_engine(options, python)


def uncertainties(properties: str, architecture: str, **changes: bool) -> list[str]:
    facts = read_model_facts(TESTS / "golden" / "ladder_one_device")
    assert facts
    names = (architecture,)
    changed = with_fields(facts, architecture=architecture, served_architectures=names, **changes)
    return refuse_unsupported(options_of(properties), changed, "/no/python")


@pytest.mark.parametrize(
    ("engine", "architecture", "is_encoder_decoder", "problem"),
    [
        ("vllm", "QWenLMHeadModel", False, "no longer served by vLLM 0.32.0: the last .* 0.23.0"),
        ("lmi-dist", "BaichuanForCausalLM", False, "no longer served by vLLM"),
        ("trtllm", "T5ForConditionalGeneration", True, "is not served by TensorRT-LLM; option"),
        ("disable", "BertForSequenceClassification", False, "makes classes.*option.task=classify"),
    ],
)
def test_a_model_that_the_engine_does_not_serve_is_refused(
    engine: str, architecture: str, is_encoder_decoder: bool, problem: str
) -> None:
    properties = f"option.rolling_batch={engine}"
    with pytest.raises(PlanError, match=problem):
        uncertainties(properties, architecture, is_encoder_decoder=is_encoder_decoder)


@pytest.mark.parametrize(
    ("properties", "architecture", "message"),
    [
        ("", "LlamaForCausalLM", ""),
        ("", "MllamaForConditionalGeneration", "no code of its own for Mllama"),
        ("", "BertForSequenceClassification", "answers at /classify"),
        ("option.task=classify", "BertForSequenceClassification", ""),
        ("option.rolling_batch=disable", "QWenLMHeadModel", ""),
    ],
)
def test_what_is_doubtful_about_a_model_is_said(
    properties: str, architecture: str, message: str
) -> None:
    found = uncertainties(properties, architecture)
    assert bool(found) == bool(message)
    assert message in " ".join(found)


def test_a_plan_of_an_engine_that_is_not_here_names_those_that_can_be_chosen() -> None:
    plan = EnginePlan(engine="gone", config=CONFIG, launch=LAUNCH)
    with pytest.raises(
        ConfigurationError, match=r"engine gone: .* vllm, lmi-dist, trtllm"
    ) as error:
        refuse_unserved(plan)
    words = str(error.value).rpartition(": ")[2].split(", ")
    assert [ROLLING_BATCH.kind.parse(word) for word in words] == words


def test_copies_of_a_dense_model_are_no_matter_of_vllms_own_nodes() -> None:
    options = options_of("option.model_id=org/m\noption.data_parallel_size=2")
    refuse_dense_copies(options, {}, LLAMA_70B)
    refuse_dense_copies(options, {"nnodes": 2}, with_fields(LLAMA_70B, num_experts=8))
    with pytest.raises(OptionError, match=r"data_parallel_size=2 over several machines is for"):
        refuse_dense_copies(options, {"nnodes": 2}, LLAMA_70B)


def test_built_engines_are_looked_for_where_the_model_is(tmp_path: Path) -> None:
    (tmp_path / "rank0.engine").touch()
    package = with_version(tmp_path / "tensorrt_llm", "1.3.0")
    python = interpreter(tmp_path, package)
    options = options_of("option.rolling_batch=trtllm")
    with pytest.raises(PlanError, match=r"rank0\.engine is a built engine.*serve the checkpoint"):
        refuse_unsupported(options, None, python, str(tmp_path))
