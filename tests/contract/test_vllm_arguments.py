"""What `check` says is mapped or passed to vLLM is taken by it: its own classes are asked.

One process of the engine's interpreter builds the arguments of every plan; no engine is started.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options, resolve_options
from lmi_backend.options.properties import Property
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import CHOICE, OPTIONS, find_option
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from tests.support.run.places import ENGINE_PYTHON, ROOT, SCRIPTS

GPUS = Hardware(devices=("0", "1"), device_memory=80 << 30, host_memory=1 << 30)
CPU = Hardware(host_memory=1 << 30)
TEXTS = (
    "true", "False", "maybe", "1", "0.5", "abc", "3k", "32K", "fcfs", "FCFS", "auto", "None", "",
    "a,b", "1,2", "[1, 2]", '["a"]',  "{}", '{"a": 1}', "deep-gemm", "ray", "some/text", "-1", "1 ",
)  # fmt: skip


# It takes the name of the device too, whatever that is.
OF_THE_DEVICE = "mm_processor_device"
REFUSED = {"option.compilation_config": '{"cudagraph_mode": "none such"}'}


class Case(NamedTuple):
    what: str
    config: EngineConfig


def plan_of(settings: dict[str, str], machine: Hardware, folder: Path) -> EngineConfig | None:
    """Return what an engine is built from; None if the options are refused."""
    given = {"option.model_id": "org/m", "option.pythonExecutable": str(ENGINE_PYTHON)}
    lines = [Property(key, value, 1) for key, value in {**given, **settings}.items()]
    try:
        options = resolve_options(lines, {}, folder=folder)
        return make_plan(options, {"PATH": "/bin"}, machine, None).config
    except ConfigurationError:
        return None


def mapped(engine: str, folder: Path) -> Iterator[Case]:
    """Yield plans of each option of the table, with each value that it reads."""
    for option in OPTIONS:
        if option is not find_option(option.name, engine) or option.status != "mapped":
            continue
        if engine != "vllm" and option is find_option(option.name, "vllm"):
            continue
        words = [part.strip() for part in option.kind.accepted.split(",")]
        if option.name in CHOICE:
            words = []
        drafts = {"option.speculative_draft_model": "org/d"}
        contexts = ({}, drafts) if option.scope in ("speculative", "lmi-dist") else ({},)
        objects = ['{"model": "org/d"}'] if option.name.endswith("speculative_config") else []
        for text in (*TEXTS, *words, "4096", *objects):
            for further in contexts:
                settings = {"option.rolling_batch": engine, **further, option.name: text}
                if config := plan_of(settings, CPU, folder):
                    yield Case(f"{engine} {settings}", config)


def passed(folder: Path) -> Iterator[Case]:
    """Yield plans of each argument of vLLM's that the table does not have."""
    signature = recorded_signature("vllm")
    assert signature
    for name in signature.arguments:
        if find_option(f"option.{name}", "vllm") is None:
            for text in TEXTS if name != OF_THE_DEVICE else ("auto",):
                settings = {f"option.{name}": text}
                if config := plan_of(settings, GPUS, folder):
                    yield Case(str(settings), config)


def golden() -> Iterator[Case]:
    for folder in sorted((ROOT / "tests" / "golden").iterdir()):
        env = folder / "env.json"
        environment = json.loads(env.read_text()) if env.is_file() else {}
        try:
            options = load_options(folder, environment)
            plan = make_plan(options, {"PATH": "/bin"}, GPUS, None)
        except ConfigurationError:
            continue
        if plan.engine == "vllm":
            yield Case(folder.name, plan.config)


@pytest.fixture(scope="module")
def outcomes(
    vllm_interpreter: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    folder = tmp_path_factory.mktemp("model")
    cases = [*golden(), *mapped("vllm", folder), *mapped("lmi-dist", folder), *passed(folder)]
    if config := plan_of(REFUSED, CPU, folder):
        cases.append(Case(str(REFUSED), config))
    cases = list({msgspec.json.encode(case.config): case for case in cases}.values())
    script = str(SCRIPTS / "vllm_arguments.py")
    output = vllm_interpreter.run(script, data=msgspec.json.encode([case.config for case in cases]))
    return dict(zip((case.what for case in cases), json.loads(output), strict=True))


def test_what_vllm_itself_refuses_is_named(outcomes: dict[str, str | None]) -> None:
    refused = outcomes[str(REFUSED)] or ""
    assert refused.startswith("OptionError: vLLM: option.compilation_config=")
    assert "is refused by vLLM" in refused


def test_every_plan_is_taken(outcomes: dict[str, str | None]) -> None:
    assert len(outcomes) > 1000
    failed = {
        what: problem for what, problem in outcomes.items() if problem and what != str(REFUSED)
    }
    assert not failed, "\n".join(f"{what}: {problem}" for what, problem in failed.items())
