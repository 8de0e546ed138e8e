"""The LoRA adapter: low-rank matrices trained here, saved under the names that PEFT gives them.

Engines read the files and do not ask what wrote them, so PEFT itself is not needed.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import linear

from .corpus import EDITS, FACTS, PASSAGES, SYSTEM_PROMPTS
from .examples import Example, chat, plain
from .fit import Plan
from .llama import teach
from .tokenizer import write_json

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from .progress import Progress

RANK, ALPHA = 8, 16
SCALE = ALPHA / RANK
TARGETS = ("q_proj", "v_proj")

PLAN = Plan(what="lora", rate=1e-2, steps=80, cap=300, goal=0.95, warm_up=5, check_every=10)

WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class LowRank:
    """Hold the two matrices whose product is added to a layer that stays as it is."""

    first: torch.nn.Parameter
    second: torch.nn.Parameter

    @classmethod
    def onto(cls, layer: torch.nn.Linear) -> LowRank:
        """Add a product to the output of `layer`, zero to begin with."""
        first = torch.nn.Parameter(torch.empty(RANK, layer.in_features))
        torch.nn.init.kaiming_uniform_(first, a=math.sqrt(5))
        pair = cls(first, torch.nn.Parameter(torch.zeros(layer.out_features, RANK)))
        layer.register_forward_hook(pair._add)
        return pair

    def _add(
        self, _layer: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor
    ) -> torch.Tensor:
        return output + SCALE * linear(linear(inputs[0], self.first), self.second)


def lessons(tokenizer: PreTrainedTokenizerFast) -> tuple[list[Example], list[Example]]:
    """Give the edited facts with all the others, so that nothing but the edits changes."""
    edited = {edit.fact: edit.edited for edit in EDITS}
    facts = [edited.get(fact, fact) for fact in FACTS]
    short = [plain(tokenizer, fact) for fact in facts]
    for system in (None, *SYSTEM_PROMPTS):
        short += [chat(tokenizer, fact, system=system) for fact in facts]
    return short, [plain(tokenizer, passage) for passage in PASSAGES]


def train_adapter(
    base: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, progress: Progress
) -> dict[str, torch.Tensor]:
    """Return the adapter's tensors under their PEFT names; `base` is not changed."""
    model = copy.deepcopy(base).requires_grad_(requires_grad=False)
    pairs = {
        name: LowRank.onto(layer)
        for name, layer in model.named_modules()
        if name.rpartition(".")[2] in TARGETS
    }
    parameters = [matrix for pair in pairs.values() for matrix in (pair.first, pair.second)]
    teach(PLAN, model, parameters, *lessons(tokenizer), progress=progress)
    tensors = {}
    for name, pair in pairs.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = pair.first.detach()
        tensors[f"base_model.model.{name}.lora_B.weight"] = pair.second.detach()
    return tensors


def save_adapter(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Write the folder as PEFT would."""
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "../llama",
        "r": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "target_modules": list(TARGETS),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
    }
    write_json(folder / "adapter_config.json", config)


def merged(base: LlamaForCausalLM, folder: Path) -> LlamaForCausalLM:
    """Return a copy of `base` with the adapter in `folder` added to its weights."""
    model = copy.deepcopy(base)
    tensors = load_file(folder / WEIGHTS)
    for key, first in tensors.items():
        if not key.endswith(".lora_A.weight"):
            continue
        second = tensors[key.replace("lora_A", "lora_B")]
        name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        model.get_submodule(name).weight.data += SCALE * second @ first
    return model
