"""A double of optimum-neuron 0.4.5's NeuronModelForCausalLM: its calls and limits, on the CPU.

The signatures are those of its source, models/inference/modeling_utils.py, the values those of
backend/config.py and of Llama's model, and so are the limits of `generate`,
backend/modules/generation/generation_utils.py, and of generation/logits_process.py.
"""

import copy
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

# The chip would compute. Two threads wait for each other most of the time when others run too.
torch.set_num_threads(1)


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
        sequence_length = sequence_length or 1024
        degree = tensor_parallel_size or 2
        return SimpleNamespace(
            checkpoint_id=model_name_or_path,
            checkpoint_revision=None,
            batch_size=batch_size or 1,
            max_batch_size=batch_size or 1,
            continuous_batching=False,
            speculation_length=0,
            sequence_length=sequence_length,
            tp_degree=degree,
            ep_degree=1,
            pp_degree=1,
            torch_dtype=torch.bfloat16,
            n_active_tokens=sequence_length,
            max_context_length=sequence_length,
            output_logits=False,
            fused_qkv=True,
            target="trn1",
            on_device_sampling=True,
            max_topk=256,
            start_rank_id=0,
            local_ranks_size=degree,
            capacity_factor=None,
            glu_mlp=True,
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
        # Its KV cache asks the type for this.
        neuron_config.torch_dtype.itemsize  # noqa: B018
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
        if self.neuron_config.on_device_sampling:
            self._check_on_device(generation_config)
            # No processor is called where the device chooses.
            generation_config = _without_processors(generation_config)
            kwargs.pop("logits_processor", None)
        else:
            self._check_on_host(generation_config)
        return self._model.generate(
            input_ids,
            attention_mask=attention_mask,
            generation_config=generation_config,
            stopping_criteria=stopping_criteria,
            **kwargs,
        )

    def _check_on_device(self, config: Any) -> None:
        top_k, top_p, temperature = _sampling_params(config)
        if top_k != -1 and not 0 < top_k <= self.neuron_config.max_topk:
            raise ValueError("Invalid top-k values found.")
        if not 0 < top_p <= 1:
            raise ValueError("Invalid top-p values found.")
        if not temperature > 0:
            raise ValueError("Invalid temperature values found.")

    def _check_on_host(self, config: Any) -> None:
        _sampling_params(config)
        if config.do_sample and config.top_k == 0 and config.top_p == 1.0:
            raise ValueError("Multinomial sampling requires at least top-k or top-p")
        if config.temperature != 1.0:
            _ = torch.zeros(1) / config.temperature
        is_sorted = 0 < config.top_k < self.config.vocab_size or 0 < config.top_p < 1
        if not is_sorted:
            raise TypeError("gather(): argument 'index' must be Tensor, not NoneType")


def _sampling_params(config: Any) -> tuple[float, float, float]:
    """As it makes tensors of them, before each answer."""
    if not config.do_sample:
        return 1.0, 1.0, 1.0
    values = [torch.tensor([each]) for each in (config.top_k, config.top_p, config.temperature)]
    top_k, top_p, temperature = (float(each) for each in values)
    return top_k, top_p, temperature


def _without_processors(config: Any) -> Any:
    plain = copy.deepcopy(config)
    for name in ("repetition_penalty", "min_p", "min_new_tokens", "bad_words_ids", "sequence_bias"):
        setattr(plain, name, None)
    return plain
