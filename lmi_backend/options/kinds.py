"""The types of options: each has a parser, and a description of what it accepts."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, Generic, Literal, TypeVar

T = TypeVar("T")
Number = TypeVar("Number", int, float)

_MOST_TOKENS = 1 << 40
_LARGEST = (1 << 53) - 1
"""What JSON and engines take for a whole number; nothing that is counted comes near."""
MOST_DEVICES = 4096
"""Devices, workers or machines; more is a slip of the hand, and would be counted one by one."""
LONGEST_WAIT = 10**9
"""Seconds; what waits for ever waits so long."""
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True)
class Kind(Generic[T]):
    """How to read a value.

    `parse` raises ValueError whose text completes the sentence "option=value …".
    """

    name: str
    parse: Callable[[str], T]
    words: str | Callable[[], Iterable[str]]
    """What is accepted: a text, or names that are known only when all modules are imported."""
    empty: T
    """What an option is that nobody set, unless its row has a default."""
    is_free: bool = False
    """Whether people write sentences and code in it, where ` #` begins no remark."""

    @property
    def accepted(self) -> str:
        """What is accepted, for people."""
        return self.words if isinstance(self.words, str) else ", ".join(self.words())


def _bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("is not a truth value")


def _json_object(text: str) -> dict[str, Any]:
    value = _json(text)
    if not isinstance(value, dict):
        message = "is not a JSON object"
        raise ValueError(message)  # noqa: TRY004  every parser raises ValueError
    return value


def _pairs(text: str) -> dict[str, str]:
    items = [item.partition("=") for item in text.split(",") if item.strip()]
    if not all(name.strip() and equals for name, equals, _ in items):
        raise ValueError("has an entry that is not NAME=VALUE")
    return {name.strip(): value for name, _, value in items}


def _items(text: str) -> list[Any]:
    """Read a list: JSON, or texts with commas between; Python's brackets and quotes are dropped."""
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            return list(value)
    words = [word.strip(" \t'\"") for word in text.strip(" []()").split(",")]
    return [_number_or_word(word) for word in words if word]


def _number_or_word(word: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(word)
    return word


def _whole_items(text: str) -> list[int]:
    items = _items(text)
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        raise ValueError("has an entry that is not a whole number")
    return items


def _limits(text: str) -> dict[str, Any]:
    """Read JSON, or LMI's older image=4,video=1."""
    if text.lstrip().startswith("{"):
        given = _json_object(text)
        if not all(_is_limit(value) for value in given.values()):
            raise ValueError("has an entry that is neither a whole number nor a JSON object")
        return given
    limits = _pairs(text.lower())
    if not all(value.strip().isdecimal() for value in limits.values()):
        raise ValueError("has an entry that is not NAME=NUMBER")
    return {name: int(value) for name, value in limits.items()}


def _is_limit(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, int) and not isinstance(value, bool))


def _weights(text: str) -> dict[str, int]:
    weights = _json_object(text)
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
            raise ValueError(f"has {json.dumps(weight)} for {json.dumps(name)}")
    return weights


def _adapters(text: str) -> dict[str, str]:
    """Read vLLM's two formats of an adapter: JSON objects with name and path, or NAME=PATH."""
    given = text.split(",") if text[:1] not in ("[", "{") else _json(text)
    adapters: dict[str, str] = {}
    for each in given if isinstance(given, list) else [given]:
        name, path = _adapter(each)
        if adapters.setdefault(name, path) != path:
            raise ValueError(f"has two adapters that are called {json.dumps(name)}")
    return adapters


def _adapter(given: Any) -> tuple[str, str]:
    name: Any
    path: Any
    if isinstance(given, str):
        name, _, path = (part.strip() for part in given.partition("="))
    else:
        fields = given if isinstance(given, dict) else {}
        name, path = fields.get("name"), fields.get("path")
    if not (isinstance(name, str) and isinstance(path, str) and name and path):
        raise ValueError(f"has an adapter without name and path: {json.dumps(given)}")
    return name, path


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is JSON that is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from error


BOOL: Kind[bool] = Kind("bool", _bool, "true or false", empty=False)
TEXT: Kind[str] = Kind("text", str, "any text", "")
FREE_TEXT: Kind[str] = replace(TEXT, is_free=True)
JSON: Kind[Mapping[str, Any]] = Kind("json", _json_object, "a JSON object", {})
PAIRS: Kind[Mapping[str, str]] = Kind("pairs", _pairs, "NAME=VALUE,NAME=VALUE", {}, is_free=True)
LIMITS: Kind[Mapping[str, Any]] = Kind("limits", _limits, "a JSON object or NAME=NUMBER,…", {})
ADAPTERS: Kind[Mapping[str, str]] = Kind(
    "adapters", _adapters, "NAME=PATH,NAME=PATH, or JSON objects with name and path in a list", {}
)
WEIGHTS: Kind[Mapping[str, int]] = Kind(
    "weights", _weights, "a JSON object of name to a whole number, 1 or more", {}
)
ITEMS: Kind[list[Any]] = Kind("list", _items, "values with commas between, or a JSON list", [])
FREE_ITEMS: Kind[list[Any]] = replace(ITEMS, is_free=True)

WHOLE_ITEMS: Kind[list[int]] = Kind(
    "list", _whole_items, "whole numbers with commas between, or a JSON list of them", []
)


def whole(minimum: int, maximum: int | None = None) -> Kind[int]:
    """Whole numbers within bounds."""
    return _within(int, "a whole number", minimum, maximum, _LARGEST)


def number(minimum: float, maximum: float | None = None) -> Kind[float]:
    """Finite numbers within bounds."""
    return _within(float, "a number", minimum, maximum, sys.float_info.max)


def _within(
    read: type[Number], what: str, minimum: Number, maximum: Number | None, largest: Number
) -> Kind[Number]:
    most = largest if maximum is None else maximum

    def parse(text: str) -> Number:
        try:
            value = read(text)
        except ValueError:
            raise ValueError(f"is not {what}") from None
        if not minimum <= value <= most:
            raise ValueError("is out of range")
        return value

    bounds = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
    return Kind(read.__name__, parse, f"{what}, {bounds}", read())


def tokens() -> Kind[int]:
    """A number of tokens as vLLM spells it: 4096, 32k (thousands), 32K (1024s), or auto, -1."""
    pattern = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
    scale = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}

    def parse(text: str) -> int:
        if text.lower() in ("auto", "-1"):
            return -1
        match = pattern.fullmatch(text)
        value = float(match[1]) * scale[match[2]] if match else 0.5
        if not value.is_integer():
            raise ValueError("is not a number of tokens")
        if not 1 <= value <= _MOST_TOKENS:
            raise ValueError("is out of range")
        return int(value)

    return Kind("tokens", parse, "a whole number, 1 or more, also as 32k or 32K, or auto", 0)


def auto_or(inner: Kind[T]) -> Kind[T | Literal["auto"]]:
    """A value of a kind, or `auto` to let this package choose."""

    def parse(text: str) -> T | Literal["auto"]:
        return "auto" if text.lower() == "auto" else inner.parse(text)

    return Kind(f"auto or {inner.name}", parse, f"auto or {inner.accepted}", "auto")


def float_type(*others: str) -> Kind[str]:
    """A type of weights in floating point, in LMI's spelling or the engines'."""
    return choice(
        "auto",
        "float32",
        "float16",
        "bfloat16",
        *others,
        fp32="float32",
        fp16="float16",
        bf16="bfloat16",
        half="float16",
        f16="float16",
        f32="float32",
        float="float32",
    )


def degree() -> Kind[int | Literal["max"]]:
    """A parallel degree: a number of devices, or `max` for all that are visible."""
    inner = whole(1, MOST_DEVICES)

    def parse(text: str) -> int | Literal["max"]:
        return "max" if text.lower() == "max" else inner.parse(text)

    return Kind("degree", parse, f"max or {inner.accepted}", "max")


def but(kind: Kind[T], **refused: str) -> Kind[T]:
    """A kind but some values, each with what to do instead."""

    def parse(text: str) -> T:
        if text.lower() in refused:
            raise ValueError(f"is not supported: {refused[text.lower()]}")
        return kind.parse(text)

    words = f"{kind.words} but {', '.join(refused)}" if kind.words == TEXT.words else kind.words
    return Kind(kind.name, parse, words, kind.empty)


def choice(*words: str, **aliases: str) -> Kind[str]:
    """One of some values, in any case; an alias is read as the value that it names."""
    values = {word.lower(): word for word in words} | aliases

    def parse(text: str) -> str:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError("is unknown") from None

    return Kind("enum", parse, ", ".join([*words, *aliases]), "")


def one_of(words: Callable[[], Iterable[str]]) -> Kind[str]:
    """Like `choice`, for values that are known only when all modules are imported."""
    return Kind("enum", lambda text: choice(*words()).parse(text), words, "")


ANY_HOST: Final = "*"
HOST_NAME: Final = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z][a-z0-9_-]{0,62}")
"""In lower case, without the last dot. The last label of a name never begins with a digit; where it
does, the system may read the whole as a number: 0x7f.1 is 127.0.0.1."""
NEVER: Final = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "168.63.129.16/32", "224.0.0.0/4",
        "240.0.0.0/4", "::/128", "fe80::/10", "ff00::/8", "fd00:ec2::/32",
        "fd20:ce::/32",
    )
)  # fmt: skip
"""What no list can open: this machine as 0.0.0.0, link-local, multicast and reserved addresses.
Also the clouds' services for a machine, which may hand out its keys."""


def read_network(entry: str) -> IPv4Network | IPv6Network | None:
    """Return an entry that is an address or a network, such as 10.2.0.0/16; None for others."""
    try:
        return ip_network(entry)
    except ValueError:
        return None


def _read(text: str) -> list[str]:
    entries = [str(item).strip().lower().removesuffix(".") for item in ITEMS.parse(text)]
    for entry in entries:
        network = read_network(entry)
        if network is None and entry != ANY_HOST and not HOST_NAME.fullmatch(entry):
            raise ValueError(f"has {entry!r}, which is not a host's name")
        if network is not None and any(
            network.version == never.version and network.subnet_of(never)  # type: ignore[arg-type]
            for never in NEVER
        ):
            raise ValueError(f"has {entry}, which media are never fetched from")
    return entries


MEDIA_HOSTS: Kind[list[str]] = Kind(
    "media hosts",
    _read,
    "names of hosts, addresses or networks, with commas between or a JSON list; * is any host",
    [],
)
