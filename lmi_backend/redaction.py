"""Keep secrets out of what people and machines read: logs, errors, plans."""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

HIDDEN: Final = "***"
"""Stands in place of a secret."""
# Shorter values are words that occur everywhere, such as "none".
_SHORTEST: Final = 8
_LONGEST_WORD: Final = 16
_LONGEST_NAME: Final = 256
# Longer ones are looked for one by one: to compile a pattern of a megabyte takes seconds.
_LONG_SECRET: Final = 1024

# Of a name in lower case with underscores. The first two kinds may be glued to what is before them.
_NAME: Final = re.compile(
    r"(token|secret|passw(or)?d|passphrase|passcode|credentials?"
    r"|(api|access|private|secret)_?keys?)$"
    r"|(passw(or)?d|passphrase|secret|(api|access|private)_?key)"
    r"(?!.*_(file|path|dir|folder|id|name|arn|type|size|len)$)"
    r"|(^|_)(pass|pat|auth|authorization|cookies?|dsn|sas|jwt|bearer|creds|sig|signature|webhook"
    r"|webhook_url|conn(ection)?_?str(ing)?)$"
    r"|_pwd$|(?<!public)_key$|otlp_(traces_)?headers$"
)
# Counts of tokens, tokens of a vocabulary, names of headers.
_PLAIN_TOKENS: Final = frozenset(
    {"max", "min", "num", "per", "bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "video",
     "audio"}
)  # fmt: skip
_PLAIN_KEY: Final = "header_key"
_PLAIN_VALUE: Final = re.compile(r"(?i)(true|false|none|null|auto)?")
# What option.env is called in a file, in the environment, for a handler and in a plan.
_ENVIRONMENTS: Final = frozenset({"option.env", "OPTION_ENV", "env", "environment"})
_LAUNCHERS: Final = frozenset({"option.mpi_options", "OPTION_MPI_OPTIONS", "mpi_options"})
_LAUNCHED: Final = re.compile(r"((?:-x\s+[\"']?\w+=|mca_base_env_list\s+)).*?(?=\s-|$)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\s*[A-Za-z_]\w*\s*")
_FORMS: Final = re.compile(
    # Keys of hubs and clouds, by how they begin.
    r"\bhf_[A-Za-z0-9]{16,}|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bsk-[\w-]{20,}|\bnvapi-[\w-]{20,}"
    r"|\bxox[abeprs]-[\w-]{10,}|\bAIza[\w-]{35}|\beyJ[\w-]{8,1024}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|(?<=[Bb]earer )[\w.~+/=-]{8,}|(?<=[Aa]uthorization: Basic )[\w+/=-]+"
    # Who somebody is, in an address.
    r"|(?<=://)[^\s/?#\"'<>]+(?=@)"
)
# A parameter of an address, and who somebody is where an address has no scheme.
_PARAMETER: Final = re.compile(r"(?<=[?&#;])(?P<name>[^=?&#;\s]+)=(?P<value>[^&#;\s\"'>]+)")
_USER: Final = re.compile(r"(?<![^\s,;=\"])[^\s,;=\"/@]+(?=@)")
# How a name may stand before its value.
_KEYS: Final = (
    re.compile(r"([\"'])(?P<name>[\w.-]{1,80})\1\s*:\s*"),
    re.compile(r"(?<![\w.-])(?P<name>-{0,2}[A-Za-z_][\w.-]{0,80})\s*=\s*"),
)
_FLAG: Final = re.compile(r"(?<![\w.-])(?P<name>--[A-Za-z][\w.-]{0,80})\s+(?!-)")
_GROUPED: Final = (
    r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}?|\[[^\]]*\]?"
    r"|\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?"
)
_VALUE: Final = re.compile(rf"{_GROUPED}|[^\s,;&\"']+(?:[\"'](?=\w)[^\s,;&\"']+)*")
# In an option a value continues to the next comma, blanks included.
_LONG_VALUE: Final = re.compile(rf"{_GROUPED}|[^,;&\"'{{}}]+")


def is_secret(name: str) -> bool:
    """Tell whether what has this name is a secret; what is too long for a name may be one."""
    if len(name) > _LONGEST_NAME:
        return True
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    plain = re.sub(r"[^a-z0-9]+", "_", plain.lower())
    if plain != (stem := plain.rstrip(string.digits)):
        plain = stem.removesuffix("_")
    return _NAME.search(plain) is not None and not _is_plain(plain)


def _is_plain(name: str) -> bool:
    *words, last = name.split("_")
    is_token = last == "token" and not _PLAIN_TOKENS.isdisjoint(words)
    return is_token or name.endswith(_PLAIN_KEY)


def without_secrets(address: str) -> str:
    """Return a request's target, or a text with addresses, without their secrets."""

    def hide(match: re.Match[str]) -> str:
        return f"{match['name']}={HIDDEN}" if is_secret(unquote(match["name"])) else match[0]

    return _hide(_PARAMETER.sub(hide, address), _VALUE)


def header_without_secrets(name: str, value: str) -> str:
    if is_secret(name):
        return HIDDEN
    if "host" in name or "forwarded" in name:
        value = _USER.sub(HIDDEN, value)
    return without_secrets(value)


def masked(name: str, value: str) -> str:
    """Return a value of an option or a variable without its secrets.

    Of option.env only the names are left: nobody but the user knows which of its values are secret.
    """
    if is_secret(name):
        return value if _PLAIN_VALUE.fullmatch(value) else HIDDEN
    if name in _ENVIRONMENTS:
        return ",".join(map(_masked_variable, value.split(",")))
    if name in _LAUNCHERS:
        value = _LAUNCHED.sub(rf"\1{HIDDEN}", value)
    return _hide(value, _LONG_VALUE)


def redact_value(name: str, value: Any) -> Any:
    """Return a value of any kind, such as a field of a plan, without its secrets."""
    if isinstance(value, str):
        return masked(name, value)
    if isinstance(value, Mapping):
        if name in _ENVIRONMENTS:
            return dict.fromkeys(value, HIDDEN)
        return {key: redact_value(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([redact_value(name, item) for item in value])
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return HIDDEN if is_number and is_secret(name) else value


def secrets_of(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield name and value of each secret that a setting holds; of option.env, of every value."""
    if isinstance(value, str):
        if name in _ENVIRONMENTS:
            pairs = (pair.partition("=") for pair in value.split(","))
            yield from ((key.strip(), item) for key, _, item in pairs)
        elif is_secret(name):
            yield name, value
        elif value.lstrip()[:1] in ("{", "["):
            try:
                yield from secrets_of(name, json.loads(value))
            except (ValueError, RecursionError):
                return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if name in _ENVIRONMENTS:
                yield str(key), str(item)
            else:
                yield from secrets_of(str(key), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from secrets_of(name, item)


class Redactor:
    """Removes secrets from texts: those of an environment, those given, and what looks like one.

    Args:
        environment: its variables with the name of a secret are known.
        given: names and values of others (`secrets_of`), but for ordinary names among them.
    """

    def __init__(
        self, environment: Mapping[str, str], given: Iterable[tuple[str, str]] = ()
    ) -> None:
        values = {value for name, value in environment.items() if is_secret(name)}
        values |= {value for name, value in given if is_secret(name) or not _is_word(value)}
        # The longest first: one may be part of another.
        secrets = sorted(
            {form for value in values for form in _forms(value)}, key=len, reverse=True
        )
        self._long = [form for form in secrets if len(form) > _LONG_SECRET]
        short = secrets[len(self._long) :]
        self._pattern = re.compile("|".join(map(re.escape, short))) if short else None

    def __call__(self, text: str) -> str:
        for form in self._long:
            text = text.replace(form, HIDDEN)
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        return _hide(text, _VALUE)

    def each(self, value: Any) -> Any:
        """Return a value of any kind with the texts in it without them."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {key: self.each(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self.each(item) for item in value])
        return value


def _masked_variable(pair: str) -> str:
    name, is_pair, _ = pair.partition("=")
    # A value with a comma continues here.
    return f"{name}={HIDDEN}" if is_pair and _VARIABLE.fullmatch(name) else pair and HIDDEN


def _hide(text: str, value: re.Pattern[str]) -> str:
    for key in _KEYS:
        text = "".join(_without(text, key, value))
    text = "".join(_without(text, _FLAG, _VALUE))
    return _FORMS.sub(HIDDEN, text)


def _without(text: str, key: re.Pattern[str], value: re.Pattern[str]) -> Iterator[str]:
    """Yield a text in parts, with other values after the names of secrets."""
    end = 0
    for match in key.finditer(text):
        if match.start() < end or not is_secret(match["name"]):
            continue
        secret = value.match(text, match.end())
        if secret is None or _PLAIN_VALUE.fullmatch(secret[0].strip("\"'")):
            continue
        mark = secret[0][0] if secret[0][0] in "\"'" else ""
        yield f"{text[end : match.end()]}{mark}{HIDDEN}{mark}"
        end = secret.end()
    yield text[end:]


def _forms(value: str) -> Iterator[str]:
    """Yield how a value may stand in a text: as it is, a line of it, in JSON, in an address."""
    for line in {value, *value.splitlines()}:
        if len(line) >= _SHORTEST:
            yield from (line, json.dumps(line)[1:-1], repr(line)[1:-1], quote(line, safe=""))


def _is_word(value: str) -> bool:
    """Return whether a text would be missed in a log: plain letters, numbers, a path here."""
    if len(value) <= _LONGEST_WORD and re.fullmatch(r"[A-Za-z_]*|[\d.,:|-]*", value):
        return True
    return value.startswith("/") and os.path.exists(value)
