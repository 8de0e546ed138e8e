"""The engine implementation of NeuronX: optimum-neuron's model, one request at a time.

Source: optimum-neuron 0.4.5, models/inference/modeling_utils.py. One process drives all cores. Its
continuous batch is vLLM's, and Neuron has a vLLM build of its own.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from lmi_backend.engines.transformers.engine import GenerateEngine
from lmi_backend.engines.transformers.loading import Loaded
from lmi_backend.engines.transformers.neuronx_compiler import compiler_environment
from lmi_backend.errors import ConfigurationError, RequestError
from lmi_backend.generation import GenerateRequest

_COMPILED = "neuron_config.json"
"""What a folder of compiled graphs has."""
_ARGUMENTS: Final = {
    "batch_size",
    "compile_cache_url",
    "compiler",
    "dtype",
    "on_device_sampling",
    "sequence_length",
    "tensor_parallel_size",
    "trust_remote_code",
}
_OFF: Final = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_p": 0.0,
}
"""What is turned off by a value."""


class NeuronxEngine(GenerateEngine):
    """One compiled model."""

    NAME = "neuronx"

    def load(self) -> Loaded:
        """Load the model; compile it first, which takes minutes, unless the folder is compiled.

        Raises:
            ConfigurationError: the library refuses the model or an argument.
        """
        arguments = self._config.arguments
        compiler_environment(arguments, os.environ)
        # After the environment: the library reads it when it is imported.
        from optimum.neuron import NeuronModelForCausalLM  # noqa: PLC0415
        from transformers import AutoTokenizer  # noqa: PLC0415

        self.VERSION = version("optimum-neuron")
        model_id = self._config.model
        trust: dict[str, Any] = {"trust_remote_code": arguments.get("trust_remote_code", False)}
        try:
            if Path(model_id, _COMPILED).is_file():
                model = NeuronModelForCausalLM.from_pretrained(model_id, **trust)
            else:
                config = self._neuron_config(NeuronModelForCausalLM)
                model = NeuronModelForCausalLM.export(model_id, config, load_weights=True, **trust)
            tokenizer = AutoTokenizer.from_pretrained(model_id, **trust)
        except (OSError, ValueError, TypeError, KeyError, SystemError) as error:
            raise ConfigurationError(f"optimum-neuron cannot load {model_id}: {error}") from error
        return Loaded(model, tokenizer, model.neuron_config.sequence_length)

    def can_go_on(self, request: GenerateRequest) -> bool:
        # The device draws what it likes, and cannot be told what it drew.
        return super().can_go_on(request) and not self._samples_on_device

    def refuse_solo(self, request: GenerateRequest) -> None:
        # A compiled model gives the logits of the last position only.
        if request.prompt_logprobs is not None:
            raise RequestError("are not served by this engine", field="prompt_logprobs")
        if self._samples_on_device and (field := _on_the_host(request)):
            problem = "needs logits on the host, but this model samples on the device"
            accepted = "a model loaded without option.on_device_generation"
            raise RequestError(problem, field=field, accepted=accepted)

    def fit_config(self, config: Any) -> None:
        """Say all of temperature, top_k and top_p in numbers, which its sampling reads as such."""
        if not config.do_sample:
            config.temperature, config.top_k, config.top_p = 1.0, 1, 1.0
            return
        config.temperature = 1.0 if config.temperature is None else config.temperature
        config.top_p = 1.0 if config.top_p is None else config.top_p
        if self._samples_on_device:
            most = self._loaded.model.neuron_config.max_topk
            config.top_k = min(config.top_k or most, most)
        elif not config.top_k and config.top_p == 1.0:
            # On the host it cannot draw from all tokens: from all but the least likely.
            config.top_k = self._defaults.vocabulary - 1

    @property
    def _samples_on_device(self) -> bool:
        return bool(getattr(self._loaded.model.neuron_config, "on_device_sampling", False))

    def _neuron_config(self, cls: Any) -> Any:
        arguments = self._config.arguments
        config = cls.get_neuron_config(
            self._config.model,
            # `generate` is stateless: one request fills the model.
            batch_size=1,
            sequence_length=arguments.get("sequence_length"),
            tensor_parallel_size=arguments.get("tensor_parallel_size"),
        )
        for name in arguments.keys() - _ARGUMENTS:
            value = arguments[name]
            if not hasattr(config, name):
                message = f"optimum-neuron has nothing like {name}={value!r}; leave the option out"
                raise ConfigurationError(message)
            setattr(config, name, value)
        if (dtype := arguments.get("dtype", "auto")) != "auto":
            config.torch_dtype = getattr(torch, dtype)
        # Its own default for most models is the device, which knows temperature, top_k and top_p.
        config.on_device_sampling = arguments.get("on_device_sampling") is not None
        return config


def _on_the_host(request: GenerateRequest) -> str:
    """Return the name of something in a request that changes or shows logits; else empty."""
    sampling = request.sampling
    wanted = {
        "logprobs": request.logprobs is not None,
        **{name: getattr(sampling, name) not in (None, off) for name, off in _OFF.items()},
        "seed": sampling.seed is not None and sampling.temperature != 0,
        "min_tokens": sampling.min_tokens > 0,
        "bad_words": bool(sampling.bad_words),
        **dict.fromkeys(sampling.extra, True),
    }
    return next((name for name, is_wanted in wanted.items() if is_wanted), "")
