"""A double of optimum-neuron 0.4.5's NeuronModelForCausalLM: its calls and limits, on the CPU.

The signatures are those of its source, models/inference/modeling_utils.py, and so are the limits
of `generate`, backend/modules/generation/generation_utils.py.
"""

import os
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM


class NeuronModelForCausalLM:
    @classmethod
    def get_neuron_config(
        cls,
        model_name_or_path: Any,
        config: Any = None,
        token: Any = None,
        revision: str | None = None,
        instance_type: str | None = None,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        tensor_parallel_size: int | None = None,
    ) -> Any:
        return SimpleNamespace(
            batch_size=batch_size or 1,
            sequence_length=sequence_length or 1024,
            tp_degree=tensor_parallel_size or 2,
            torch_dtype="bfloat16",
            fused_qkv=False,
            on_device_sampling=False,
            sequence_parallel_enabled=False,
            flags=os.environ.get("NEURON_CC_FLAGS", ""),
        )

    @classmethod
    def export(
        cls,
        model_id: str,
        neuron_config: Any,
        config: Any = None,
        token: Any = None,
        revision: str | None = None,
        load_weights: bool | None = False,
        **kwargs: Any,
    ) -> "NeuronModelForCausalLM":
        if not load_weights:
            raise ValueError("a model without weights cannot generate")
        model = cls()
        model._model = AutoModelForCausalLM.from_pretrained(model_id, dtype=torch.float32)
        model.config, model.neuron_config = model._model.config, neuron_config
        model.generation_config = model._model.generation_config
        return model

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        generation_config: Any = None,
        stopping_criteria: Any = None,
        **kwargs: Any,
    ) -> Any:
        batch_size, sequence_length = input_ids.shape
        if sequence_length > self.neuron_config.sequence_length:
            raise ValueError("exceeds the model static sequence length")
        if batch_size > self.neuron_config.batch_size:
            raise ValueError("exceeds the model static batch size")
        if generation_config.num_beams not in (None, 1):
            raise ValueError("beam search is not supported for neuron models")
        return self._model.generate(
            input_ids,
            attention_mask=attention_mask,
            generation_config=generation_config,
            stopping_criteria=stopping_criteria,
            **kwargs,
        )
