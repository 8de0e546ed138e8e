"""Options and plans, by the lines that a user writes."""

from collections.abc import Mapping
from pathlib import Path

from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.sizing.model_facts import ModelFacts

FOLDER = Path("/models/m")
PATH = {"PATH": "/bin"}
CPU = Hardware()
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256,
    "max_position_embeddings": 128,
}  # fmt: skip
"""config.json of a small model."""


def options_of(
    text: str = "", environment: Mapping[str, str] | None = None, folder: Path = FOLDER
) -> LmiOptions:
    """Return what the lines of a file, and variables, say."""
    return resolve_options(parse_properties(text), environment or {}, folder=folder)


def plan_of(
    text: str = "",
    hardware: Hardware = CPU,
    facts: ModelFacts | None = None,
    *,
    folder: Path = FOLDER,
    environment: Mapping[str, str] = PATH,
) -> EnginePlan:
    """Return the plan of such lines for a machine with this environment."""
    return make_plan(options_of(text, folder=folder), environment, hardware, facts)
