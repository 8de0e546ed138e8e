"""What is said to be mapped to an engine is read by it.

vLLM takes all its arguments as they are, which test_vllm_arguments.py asks it about; so does
TensorRT-LLM. Of the others each argument is looked up by name: here by their real code, on the CPU.
"""

import json
from typing import Any

import msgspec
import pytest

from lmi_backend.options import resolve_options
from lmi_backend.options.properties import Property
from lmi_backend.options.table import OPTIONS, find_option
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from tests.support.run.places import ROOT, SCRIPTS, TINY, TINY_DATA

CHOOSES = {"transformers": "disable", "deepspeed": "deepspeed"}
GPUS = Hardware(devices=("0", "1"), device_memory=80 << 30, host_memory=1 << 30)
# Each with the values that name an argument; what cannot be together is in a case of its own.
TRANSFORMERS = {
    "option.dtype": "fp32",
    "option.revision": "main",
    "option.trust_remote_code": "false",
    "option.low_cpu_mem_usage": "true",
}
CASES: list[tuple[str, dict[str, str]]] = [
    (
        "transformers",
        {
            **TRANSFORMERS,
            "option.device_map": "cpu",
            "option.decoding_strategy": "sample",
            "option.stop_sequence": "x",
            "option.kwargs": "{}",
        },
    ),
    ("transformers", {"option.quantize": "bitsandbytes8", "option.pipeline_parallel_degree": "2"}),
    ("transformers", {"option.load_in_8bit": "true", "option.tensor_parallel_degree": "2"}),
    ("transformers", {"option.load_in_4bit": "true"}),
    ("transformers", {"option.disable_flash_attn": "false"}),
    ("deepspeed", {**TRANSFORMERS, "option.max_tokens": "64", "option.mpi_mode": "false"}),
]


T5 = {"engine": "MPI", "option.tensor_parallel_degree": "2", "option.model_id": f"{TINY_DATA}/t5"}


def plan_of(engine: str, settings: dict[str, str]) -> EnginePlan:
    given = {"option.rolling_batch": CHOOSES[engine], "option.model_id": str(TINY / "llama")}
    lines = [Property(key, value, 1) for key, value in {**given, **settings}.items()]
    options = resolve_options(lines, {}, folder=ROOT)
    machine = GPUS if engine == "transformers" else Hardware(host_memory=1 << 30)
    return make_plan(options, {"PATH": "/bin"}, machine, None)


@pytest.mark.parametrize("engine", CHOOSES)
def test_every_mapped_argument_has_a_case(engine: str) -> None:
    named = {name for each, settings in CASES if each == engine for name in settings}
    mapped = {
        option.name
        for option in OPTIONS
        if option is find_option(option.name, engine)
        and option.status_under(engine).detail.startswith(f"{plan_of(engine, {}).engine} ")
        and option.status_under(engine).word == "mapped"
    }
    assert mapped <= named


def test_what_is_mapped_is_read(vllm_interpreter: Any) -> None:
    plans = [plan_of(engine, settings) for engine, settings in CASES]
    cases = [(plan.engine, plan.config, 1) for plan in plans]
    cases.append(("transformers", plan_of("transformers", T5).config, 2))
    script = str(SCRIPTS / "unread_arguments.py")
    *outcomes, (_, of_t5) = json.loads(
        vllm_interpreter.run(script, data=msgspec.json.encode(cases))
    )
    given: dict[str, set[str]] = {}
    read: dict[str, set[str]] = {}
    for (engine, _), plan, (unread, refused) in zip(CASES, plans, outcomes, strict=True):
        # One that the library does not have at all must not be said to be mapped.
        assert "has nothing like" not in refused
        names = set(plan.config.arguments)
        given.setdefault(engine, set()).update(names)
        read.setdefault(engine, set()).update(names - set(unread))
    assert given == read
    assert "option.quantize=bitsandbytes8 needs the package bitsandbytes" in outcomes[1][1]
    assert "option.tensor_parallel_degree=2 must be 1" in of_t5
    assert "encoder-decoder" in of_t5
