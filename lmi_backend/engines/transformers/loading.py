"""Load a model and its tokenizer: the right class, type, quantisation, devices, and ranks.

LoRA adapters have names. PEFT applies one to the whole model, so requests take turns.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BitsAndBytesConfig,
)

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines import closed_groups
from lmi_backend.errors import ConfigurationError, OptionError, RequestError
from lmi_backend.files import read_bounded, without_folder


class PeftAdapters:
    """LoRA adapters by name. What changes the model wants it not in use."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._folders: dict[str, str] = {}
        """Those that are loaded, by the names that PEFT has of them."""
        self._later: dict[str, str] = {}
        """Folders of those that are loaded with their first use."""
        self._used = ""

    def check(self, name: str) -> None:
        """Raise RequestError if no adapter has this name; the base model's is empty."""
        if name and name not in {**self._folders, **self._later}:
            names = (
                ", ".join({**self._folders, **self._later})
                or "none: option.enable_lora is off or adapters/ empty"
            )
            raise RequestError("is unknown", field="adapter", value=name, accepted=names)

    def load(self, name: str, folder: str, *, is_now: bool = True) -> None:
        """Make an adapter known, or replace it.

        Args:
            is_now: load its weights now, not with its first use.

        Raises:
            RequestError: the library cannot load it.
        """
        own = self._loaded(name, folder) if is_now else ""
        with self._lock:
            replaced = self._folders.pop(name, None)
            self._later.pop(name, None)
            (self._folders if own else self._later)[name] = own or folder
        if replaced is not None:
            self._model.delete_adapter(replaced)

    def _loaded(self, name: str, folder: str) -> str:
        # PEFT makes its name part of module names, which have no dots.
        own = f"adapter{next(self._numbers)}"
        try:
            self._model.load_adapter(folder, adapter_name=own)
            self._model.disable_adapters()
        except Exception as error:  # Each library below it has errors of its own.
            # A part of it may be in the model.
            with contextlib.suppress(Exception):
                self._model.delete_adapter(own)
            problem = f"cannot be loaded by PEFT: {without_folder(error, folder)}"
            raise RequestError(problem, field="adapter", value=name) from error
        return own

    def unload(self, name: str) -> None:
        self._later.pop(name, None)
        if (own := self._folders.pop(name, None)) is not None:
            self._model.delete_adapter(own)

    def use(self, name: str) -> None:
        """Apply an adapter to the model from now on; none if the name is empty.

        Raises:
            RequestError: the library cannot load it.
        """
        if name == self._used:
            return
        if name:
            self.check(name)
            if name in self._later:
                self.load(name, self._later[name])
            self._model.set_adapter(self._folders[name])
            self._model.enable_adapters()
        else:
            self._model.disable_adapters()
        self._used = name


class Loaded(NamedTuple):
    model: Any
    tokenizer: Any
    max_model_len: int
    """Longest prompt plus answer, in tokens."""
    is_seq2seq: bool = False
    device: str = "cpu"
    """Device of the prompts' tensors."""


_DTYPES: Final = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_PASSED: Final = ("trust_remote_code", "low_cpu_mem_usage", "attn_implementation")


def load(config: EngineConfig) -> Loaded:
    """Load what the arguments name, on this rank's devices.

    Raises:
        ConfigurationError: the library refuses the model or an argument.
    """
    source: dict[str, Any] = {
        "revision": config.arguments.get("revision") or "main",
        "trust_remote_code": config.arguments.get("trust_remote_code", False),
    }
    base = _base(config.model)
    try:
        model_config = AutoConfig.from_pretrained(base, **source)
        is_seq2seq = bool(model_config.is_encoder_decoder)
        cls = AutoModelForSeq2SeqLM if is_seq2seq else AutoModelForCausalLM
        model = cls.from_pretrained(base, **source | _arguments(config, is_seq2seq))
        if base != config.model:
            model = _merged(model, config.model)
        # An adapter may have a tokenizer of its own.
        has_tokenizer = Path(config.model, "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(config.model if has_tokenizer else base, **source)
    except (OSError, ValueError, TypeError, KeyError, ImportError) as error:
        raise ConfigurationError(f"Transformers cannot load {config.model}: {error}") from error
    longest = _max_length(model.config, tokenizer)
    if max_model_len := config.arguments.get("max_model_len"):
        longest = min(longest, max_model_len)
    return Loaded(model.eval(), tokenizer, longest, is_seq2seq, str(model.device))


def ranks() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _base(model: str) -> str:
    """Return the model itself, or what it adapts if it is a folder of a PEFT adapter."""
    adapter = Path(model, "adapter_config.json")
    if not adapter.is_file() or Path(model, "config.json").is_file():
        return model
    if importlib.util.find_spec("peft") is None:
        raise ConfigurationError(f"{model} is a PEFT adapter, and this interpreter has no peft")
    base: str = json.loads(read_bounded(adapter))["base_model_name_or_path"]
    beside = Path(model, base)
    return str(beside.resolve()) if beside.is_dir() else base


def _merged(model: Any, adapter: str) -> Any:
    """Return a model with an adapter's weights added to its own, as LMI does."""
    from peft import PeftModel  # noqa: PLC0415

    return PeftModel.from_pretrained(model, adapter).merge_and_unload()


def _arguments(config: EngineConfig, is_seq2seq: bool) -> dict[str, Any]:
    given = config.arguments
    made: dict[str, Any] = {name: given[name] for name in _PASSED if name in given}
    dtype = given.get("dtype", "auto")
    made["dtype"] = _DTYPES.get(dtype, "auto")
    quantize = given.get("quantize") or ("bitsandbytes8" if dtype == "int8" else "")
    if quantize:
        made["quantization_config"] = _quantization(quantize)
    if ranks() > 1:
        closed_groups.install()
        # Each rank holds its part of each layer; device_map would place whole layers.
        made["distributed_config"] = _tensor_parallel(is_seq2seq)
    elif device_map := given.get("device_map") or _device_map(given):
        made["device_map"] = device_map
    kwargs: dict[str, Any] = given.get("kwargs", {})
    return made | kwargs


def _quantization(method: str) -> Any:
    if importlib.util.find_spec("bitsandbytes") is None:
        problem = "needs the package bitsandbytes, which this interpreter has not"
        raise OptionError(problem, option="option.quantize", value=method, origin="transformers")
    bits = method.removeprefix("bitsandbytes")
    return BitsAndBytesConfig(**{f"load_in_{bits}bit": True})


def _tensor_parallel(is_seq2seq: bool) -> Any:
    if is_seq2seq:
        problem = "must be 1: Transformers' continuous batching, by which ranks agree, has no"
        raise OptionError(
            f"{problem} encoder-decoder models",
            option="option.tensor_parallel_degree",
            value=str(ranks()),
            origin="transformers",
        )
    from transformers.distributed import DistributedConfig  # noqa: PLC0415

    return DistributedConfig(tp_size=ranks(), tp_plan="auto")


def _device_map(arguments: dict[str, Any]) -> Any:
    # Layers are placed whole, one device after another: stages are the only split in one process.
    size = arguments.get("tensor_parallel_size", 1) * arguments.get("pipeline_parallel_size", 1)
    if not torch.cuda.is_available():
        return None
    return "auto" if size > 1 else {"": 0}


def _max_length(config: Any, tokenizer: Any) -> int:
    text = config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if isinstance(length := getattr(text, name, None), int):
            return length
    # T5 has no bound of its own; its tokenizer names what it was trained with.
    named = getattr(tokenizer, "model_max_length", 0)
    return int(named) if 0 < named < 1_000_000 else 2048
