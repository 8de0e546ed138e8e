"""Every option LMI has ever had: lmi_options.csv lists them with scope and environment forms."""

import csv
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import resolve_options
from lmi_backend.options.classification import status_of
from lmi_backend.options.properties import Property
from lmi_backend.options.signature import NO_FLAG, recorded_signature
from lmi_backend.options.sources import prefixed
from lmi_backend.options.spec import Option, implementation_of
from lmi_backend.options.table import ENGINES, KEYS, OPTIONS, VARIABLES, find_option
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan

FILE = Path(__file__).resolve().parents[1] / "data" / "lmi_options.csv"
with FILE.open(encoding="utf-8", newline="") as lines:
    ROWS = list(csv.DictReader(lines))

VLLM = ("vllm", "lmi-dist")
ENGINES_OF = {
    "vllm": VLLM,
    "adapters": VLLM,
    "speculative": VLLM,
    "chat": VLLM,
    "embedding": VLLM,
    "lmcache": VLLM,
    "lmi-dist": ("lmi-dist",),
    "trtllm": ("trtllm",),
    "hf": ("transformers",),
    "deepspeed": ("deepspeed",),
    "neuronx": ("vllm-neuron",),
}
# What to set so that rolling_batch chooses an engine, and the dialect is still open.
WORDS = {"vllm": "auto", "transformers": "disable", "vllm-neuron": "tnx"}
MACHINES = (
    Hardware(devices=("0", "1", "2", "3"), device_memory=80 << 30, host_memory=1 << 30),
    Hardware(host_memory=1 << 30),
)
# What makes an option count that does nothing alone.
LORA = (*VLLM, "trtllm", "transformers", "vllm-neuron")
CONTEXTS = (
    {},
    {"option.tensor_parallel_degree": "1"},
    {"option.mpi_mode": "false"},
    {"option.mpi_mode": "true"},
    {"option.speculative_length": "3"},
    {"option.quantize": "smoothquant"},
    {"minWorkers": "3", "option.tensor_parallel_degree": "1"},
    {"maxWorkers": "2", "option.mpi_mode": "false"},
    {"required_memory_mb": "1", "gpu.required_memory_mb": "1"},
)


def cases() -> Iterator[tuple[str, str]]:
    for row in ROWS:
        for engine in ENGINES_OF.get(row["scope"], ENGINES):
            yield row["key"], engine


def test_the_list_is_whole() -> None:
    assert len(ROWS) == 693


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_has_one_fate(engine: str) -> None:
    signature = recorded_signature(implementation_of(engine))
    for key, of in cases():
        if of != engine or key.startswith("env:") or "*" in key:
            continue
        status = status_of(key, engine, signature)
        assert status.word in ("mapped", "passed", "ignored", "refused")
        assert status.detail, key
        assert "is neither an option" not in status.detail, f"{key} under {engine} is unknown"
        assert "has to accept" not in status.detail or engine == "echo", key


@pytest.mark.parametrize("scope", ["vllm", "speculative", "trtllm"])
def test_an_engines_own_arguments_reach_it(scope: str) -> None:
    engine = ENGINES_OF[scope][0]
    signature = recorded_signature(engine)
    assert signature
    for row in ROWS:
        name = row["key"].removeprefix("option.")
        if row["scope"] == scope and name in signature.arguments:
            status = status_of(row["key"], engine, signature)
            has_flag = signature.arguments[name].flag != NO_FLAG
            words = ("mapped", "passed") if has_flag else ("refused",)
            # All it does is behind a path that is not served, as vLLM's /metrics.
            if status.detail.startswith("no effect: ") and status.detail.endswith("not served"):
                words = ("ignored",)
            assert status.word in words, row["key"]


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "transformers"])
def test_a_misspelt_option_is_refused_with_the_closest_name(engine: str) -> None:
    key = "option.tensor_paralel_degree"
    status = status_of(key, engine, recorded_signature(engine))
    assert status.word == "refused"
    assert status.detail.endswith("did you mean option.tensor_parallel_degree?")


def test_every_environment_form_is_read() -> None:
    bare = {
        name
        for option in OPTIONS
        for name in (*option.env, *option.inverse_env, *option.overriding_env)
    }
    for row in ROWS:
        for form in filter(None, row["env"].split("|")):
            name = form.partition("=")[0].partition("(")[0]
            known = (
                any(key in KEYS or key == row["key"] for key, _ in prefixed({name: "1"}))
                or name in bare
                or name in VARIABLES
                or name.startswith("ARGS_")
            )
            assert known, f"{name} ({row['key']})"


def samples(option: Option[object]) -> list[str]:
    """Return values of many kinds that the option can read."""
    words = [part.strip() for part in option.kind.accepted.split(",")]
    numbers = ("64", "8", "2", "1", "0.5", "4096", "1000000")
    texts = ("mpi", "legacy", *words, *numbers, "true", "false", '{"a": 1}', "A=1", "some/text")
    return [text for text in texts if option.can_read(text)]


def outcome(engine: str, settings: dict[str, str], machine: Hardware, folder: Path) -> str:
    """Return the plan as text without its reasons, or why there is none."""
    given = {"option.rolling_batch": WORDS.get(engine, engine), "option.model_id": "org/m"}
    given |= {"option.enable_lora": "true"} if engine in LORA else {}
    lines = [Property(key, value, 1) for key, value in {**given, **settings}.items()]
    try:
        options = resolve_options(lines, {}, folder=folder)
        plan = make_plan(options, {"PATH": "/bin"}, machine, None).as_dict()
    except ConfigurationError as error:
        return str(error)
    return json.dumps(
        {name: value for name, value in plan.items() if name not in ("notes", "reasons")}
    )


def has_effect(engine: str, option: Option[object], folder: Path) -> bool:
    for machine, context in product(MACHINES, CONTEXTS):
        rest = {name: value for name, value in context.items() if name != option.name}
        before = outcome(engine, rest, machine, folder)
        tried = ({**rest, option.name: value} for value in samples(option))
        if any(outcome(engine, settings, machine, folder) != before for settings in tried):
            return True
    return False


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_said_to_be_mapped_changes_the_plan(engine: str, tmp_path: Path) -> None:
    """Set each mapped option to something else: the plan differs, or it is refused by name."""
    (tmp_path / "adapters" / "a").mkdir(parents=True)
    (tmp_path / "adapters" / "a" / "adapter_config.json").write_text("{}")
    unchanged = [
        option.name
        for option in OPTIONS
        if option is find_option(option.name, engine)
        and option.status_under(engine).word == "mapped"
        and not has_effect(engine, option, tmp_path)
    ]
    assert not unchanged, " ".join(unchanged)
