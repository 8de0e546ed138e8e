"""Read fields of a model's config.json, whatever the model family calls them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from lmi_backend.bounded_files import read_bounded
from lmi_backend.errors import ConfigurationError

# A multimodal config keeps the language model's in one of these, sometimes two deep.
_LANGUAGE_MODEL = ("text_config", "llm_config", "language_config", "thinker_config")

# transformers leaves out of a nested config what equals the default of its class.
_DECODER_DEFAULTS = MappingProxyType(
    {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    }
)
_NESTED_DEFAULTS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "llama": _DECODER_DEFAULTS,
        "mistral": {**_DECODER_DEFAULTS, "num_key_value_heads": 8, "intermediate_size": 14336},
        "qwen2": {**_DECODER_DEFAULTS, "intermediate_size": 22016, "vocab_size": 151936},
        "gemma3_text": {
            "num_hidden_layers": 26,
            "hidden_size": 2304,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "intermediate_size": 9216,
            "vocab_size": 262208,
        },
    }
)
# No real dimension comes near; larger ones are slips of the hand.
_LARGEST = (1 << 31) - 1


class MissingFieldError(ConfigurationError):
    """A config.json does not say something in a way we know; an engine may know another."""


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

    def get(self, name: str) -> object:
        """Return a field, None if it is absent; "a.b" is field b of the object a."""
        first, dot, rest = name.partition(".")
        value = self.fields.get(first)
        if value is None and self.prefix:
            value = _NESTED_DEFAULTS.get(str(self.fields.get("model_type")), {}).get(first)
        if not dot:
            return value
        return value.get(rest) if isinstance(value, Mapping) else None

    def shared(self, name: str) -> object:
        """Return a field that a multimodal config may also keep at its top level."""
        value = self.fields.get(name)
        return self.outer.get(name) if value is None else value

    def number(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the first of the fields that is there, as a whole number.

        A list holds one number a layer; the largest counts, so estimates err on the safe side.

        Args:
            *names: what model families call the field.
            default: what to return if none is there; None makes the field required.
            least: the smallest acceptable number.

        Raises:
            MissingFieldError: none of them is there.
            ConfigurationError: it is no sensible whole number.
        """
        for name in names:
            value = self.get(name)
            if value is None:
                continue
            numbers = value if isinstance(value, list) and value else [value]
            return max(self._whole(name, number, least) for number in numbers)
        if default is not None:
            return default
        raise MissingFieldError(f"{self.file}: {self.prefix}{names[0]} is missing")

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

    def error(self, name: str, value: object, problem: str) -> ConfigurationError:
        """Say in one sentence which field of which file is wrong, and how."""
        shown = json.dumps(value, default=str)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
        prefix = self.prefix if self.get(name) is not None else ""
        return ConfigurationError(f"{self.file}: {prefix}{name}={shown} {problem}")

    def _whole(self, name: str, value: object, least: int) -> int:
        # bool is an int to Python, but `true` is no number of layers.
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, value, "is not a whole number")
        if not least <= value <= _LARGEST:
            raise self.error(name, value, f"is not between {least} and {_LARGEST}")
        return value


def read_config(folder: Path) -> ConfigFields | None:
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
    fields, prefix = whole, ""
    while key := _language_model(fields):
        fields, prefix = fields[key], f"{prefix}{key}."
    return ConfigFields(file, fields, whole, prefix)


def _language_model(fields: Mapping[str, object]) -> str:
    found = (key for key in _LANGUAGE_MODEL if fields.get(key) and isinstance(fields[key], dict))
    return next(found, "")
