"""Read fields of a model's config.json by the names that each model family has for them.

Fields that nobody has read, and that may mean memory, are reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.printable import printable

# A multimodal config keeps the language model's in one of these, sometimes two deep.
_LANGUAGE_MODEL = ("text_config", "llm_config", "language_config", "thinker_config")

_CLASSES: Final = Path(__file__).with_name("class_defaults.json")
# No real dimension comes near; larger ones are slips of the hand.
_LARGEST = (1 << 31) - 1
_DEEPEST = 4
"""Configs inside one another: a class may name itself for its own part."""
_NAME = 80
"""Characters of a name that are shown."""
_LONGEST = 20
"""Digits of a number that is written as text."""


class MissingFieldError(ConfigurationError):
    """A config.json does not say something in a way we know; an engine may know another.

    So it is no reason to refuse: the model is planned as one of an unknown size.
    """


@dataclass(frozen=True)
class ConfigFields:
    """The language model's part of one config.json."""

    file: Path
    fields: Mapping[str, object]
    """The language model's own fields."""
    outer: Mapping[str, object]
    """The whole file's, which are the same unless the model is multimodal."""
    prefix: str = ""
    """Where the fields are in the file, for example "text_config."."""
    read: set[str] = field(default_factory=set, compare=False)
    """The names that were looked up."""
    assumed: set[str] = field(default_factory=set, compare=False)
    """Those that the file should have and has not, so that the class's default was taken."""

    def get(self, name: str) -> object:
        """Return a field, else what its class takes by itself; "a.b" is field b of the object a.

        None if it is null, or neither the file nor the class has it.
        """
        value = self._written(name)
        return self._default(name) if value is None else value

    def _written(self, name: str) -> object:
        first, dot, rest = name.partition(".")
        self.read.add(first)
        value = self.fields.get(first)
        if not dot:
            return value
        return value.get(rest) if isinstance(value, Mapping) else None

    def _default(self, name: str) -> object:
        """Return what the class takes where the file has no such field."""
        # What the file says to be null is null to the class too.
        default = None if name in self.fields else _defaults(self.fields).get(name)
        return None if isinstance(default, list) else default

    @property
    def unknown_class(self) -> str:
        """The file's model_type if no class of that name was recorded."""
        kind = str(self.fields.get("model_type") or self.outer.get("model_type") or "")
        return printable(kind, _NAME) if kind and kind not in _classes() else ""

    def shared(self, name: str) -> object:
        """Return a field that a multimodal config may also keep at its top level."""
        self.read.add(name)
        for value in (self.fields.get(name), self.outer.get(name)):
            if value is not None:
                return value
        return self._default(name)

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the first of the fields that is there, as a whole number.

        A list holds one number a layer; the largest counts, so estimates err on the safe side.

        Args:
            default: what to return if none is there; None makes the field required.

        Raises:
            MissingFieldError: none of them is there.
            ConfigurationError: it is no sensible whole number.
        """
        # A class's default has one of the names; the file may have another.
        for find in (self._written, self._default):
            named = ((name, _numbers(find(name))) for name in names)
            name, numbers = next(((name, values) for name, values in named if values), ("", []))
            if numbers and default is None and find == self._default and not self.prefix:
                self.assumed.add(name)
            if numbers:
                return max(self._whole(name, number, least) for number in numbers)
        if default is not None:
            return default
        raise MissingFieldError(f"{self.file}: {self.prefix}{names[0]} is missing")

    def usual_kinds(self, num_layers: int) -> list[str]:
        """Return what the class calls each layer by itself; empty if all are alike."""
        kinds = _defaults(self.fields).get("layer_types")
        period = kinds if isinstance(kinds, list) else []
        return [str(period[at % len(period)]) for at in range(num_layers)] if period else []

    def name_of(self, *names: str) -> str:
        """Return the first of the fields that is there, by name; else the first of all."""
        return next((name for name in names if self.shared(name) is not None), names[0])

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field, at the top level too, that is true or false."""
        value = self.shared(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, value, "is neither true nor false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a field, at the top level too, that is a string."""
        value = self.shared(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(name, value, "is not a string")
        return value

    def error(self, name: str, value: object, problem: str) -> MissingFieldError:
        """Return an error whose one sentence has the wrong field, its file and the problem."""
        text = json.dumps(value, default=str)
        text = text if len(text) <= 80 else f"{text[:80]}…"
        prefix = self.prefix if self.get(name) is not None else ""
        return MissingFieldError(f"{self.file}: {prefix}{name}={text} {problem}")

    def _whole(self, name: str, value: object, least: int) -> int:
        # Python's readers take 131072.0 and "40" for what they are.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:_LONGEST])
        # bool is an int to Python, but `true` is no number of layers.
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, value, "is not a whole number")
        if not least <= value <= _LARGEST:
            raise self.error(name, value, f"is not between {least} and {_LARGEST}")
        return value


def read_config(folder: Path, overrides: Mapping[str, object] | None = None) -> ConfigFields | None:
    """Read the folder's config.json and find the language model in it.

    Returns:
        Its fields; None if the folder has no config.json.

    Raises:
        ConfigurationError: the file cannot be read or is not a JSON object.
    """
    file = folder / "config.json"
    try:
        whole = json.loads(read_bounded(file).decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError: also text that is not UTF-8
        raise ConfigurationError(f"{file}: is not JSON: {error}") from error
    if not isinstance(whole, dict):
        raise ConfigurationError(f"{file}: is not a JSON object")
    whole = _overridden(whole, overrides or {})
    fields: Mapping[str, object] = whole
    prefix = ""
    while prefix.count(".") < _DEEPEST and (key := _language_model(fields)):
        fields, prefix = nested_fields(fields, key), f"{prefix}{key}."
    return ConfigFields(file, fields, whole, prefix)


def _overridden(whole: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """Return a config with other values, in configs inside it too; the rest is replaced."""
    config = dict(whole)
    for key, value in overrides.items():
        inner = whole.get(key)
        is_config = key.endswith("_config") and key != "quantization_config"
        if is_config and isinstance(inner, Mapping) and isinstance(value, Mapping):
            config[key] = _overridden(inner, value)
        else:
            config[key] = value
    return config


def nested_fields(outer: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return an object inside a config as its class makes it; empty if there is none."""
    fields = outer.get(key, {})
    kind = _defaults(outer).get(key)
    if not isinstance(fields, Mapping) or fields.get("model_type") or not kind:
        return fields if isinstance(fields, Mapping) else {}
    return {**fields, "model_type": kind}


def _numbers(value: object) -> list[object]:
    values = value if isinstance(value, list) and value else [value]
    return [each for each in values if each is not None]


def _defaults(fields: Mapping[str, object]) -> Mapping[str, object]:
    return _classes().get(str(fields.get("model_type")), {})


@cache
def _classes() -> Mapping[str, Mapping[str, object]]:
    """Return each config class's sizes, as `tools/record_model_classes.py` has recorded them."""
    classes: dict[str, dict[str, object]] = json.loads(_CLASSES.read_text(encoding="utf-8"))
    return classes


def _language_model(fields: Mapping[str, object]) -> str:
    is_flat = bool({"hidden_size", "num_hidden_layers", "d_model", "n_embd"} & set(fields))
    for key in _LANGUAGE_MODEL:
        if fields.get(key) and isinstance(fields[key], dict):
            return key
        # A file may leave out a part whose numbers are all the class's own.
        if not is_flat and key not in fields and nested_fields(fields, key):
            return key
    return ""


def read_architectures(config: ConfigFields) -> tuple[str, ...]:
    """Return the architectures of a model, in the file's order.

    Raises:
        ConfigurationError: they are not a list of names.
    """
    # The file's own come first: a language model inside another is named after itself.
    return _names(config, config.outer.get("architectures") or config.get("architectures") or [])


def read_served_architectures(config: ConfigFields) -> tuple[str, ...]:
    """Return the architectures that an engine may serve a model as.

    vLLM serves a draft model of the speculators library as the model that it drafts for.

    Raises:
        ConfigurationError: they are not a list of names.
    """
    speculators = config.outer.get("speculators_config")
    if not isinstance(speculators, Mapping):
        return read_architectures(config)
    verifier = speculators.get("verifier")
    names = verifier.get("architectures") if isinstance(verifier, Mapping) else None
    return _names(config, names or [])


def _names(config: ConfigFields, names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise config.error("architectures", names, "is not a list of names")
    return tuple(names)


_HARMLESS: Final = re.compile(
    r"""
    .*(_ids?|_idxs|_index|2label|2id|theta|freq|_interval|_offset|_iters|_length|_tokens|_factor
      |_multipliers?|_scale|_labels|_version|_limit)
    |.*(rope|rotary|norm|window|chunk_size|topk|top_k|_group|indexer|mtp|original_max).*
    |(block|conv|time_step|attn|residual|routed|router|output|summary|qk|zero_expert|rescale)_.*
    |(vision|audio|image|video|media|boi|eoi|boa|eoa|mm).*|(bos|eos|unk|pad|sep)
    |num_(beams|return_sequences|logits_to_keep|hash_layers|attention_heads|key_value_heads)
    |architectures|auto_map|pretraining_tp|head_dim.*|layer_types|vocab_size_per_layer_input
    |n_positions|n_ctx|experts_per_token|first_k_dense_replace|kv_channels|ep_size|n_groups?
    |expand|L_bp_cycles|mamba_(expand|head_dim|d_head|dt_rank)|index_(share|skip).*|pruned_heads
    |quantization|.*_every_n_layers|interleave_moe_layer_step|no_repeat.*|no_rope.*
    """,
    re.VERBOSE,
)
"""Names of numbers, lists and objects that say how a model computes, and not how large it is."""
_MOST_NAMES: Final = 6


def unread_fields(config: ConfigFields) -> tuple[str, ...]:
    """Return the language model's fields that nobody has read, and that may be sizes."""
    names = config.fields.keys() - config.read
    return tuple(sorted(name for name in names if _may_be_size(name, config.fields[name])))


def _may_be_size(name: str, value: object) -> bool:
    is_plain = isinstance(value, bool) or not isinstance(value, int | list | dict)
    return not (is_plain or value in (0, 1, [], {}) or _HARMLESS.fullmatch(name))


def uncounted(names: tuple[str, ...]) -> str:
    """Say which fields are not counted; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    listed = ", ".join(names[:_MOST_NAMES])
    return f"not counted: what these fields of config.json may mean for memory: {listed}{more}"
