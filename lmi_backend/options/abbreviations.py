"""What the engine's command line makes of a name: another spelling, or a flag's beginning."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final, NoReturn

from lmi_backend.errors import OptionError
from lmi_backend.options.interpreter import find_interpreter
from lmi_backend.options.option import PREFIX
from lmi_backend.options.signature import NO_FLAG, Signature, signature
from lmi_backend.options.table import KEYS
from lmi_backend.options.table.variables import SERVER_FLAGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options.resolve import LmiOptions
    from lmi_backend.options.setting import WrittenSetting

_SHOWN: Final = 200


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message if len(message) <= _SHOWN else f"{message[:_SHOWN]}…")


def release_with_flags(options: LmiOptions, environment: Mapping[str, str]) -> Signature | None:
    """Return what the engine's release takes; None if no flags set its arguments."""
    implementation = options.choice.spec.implementation
    if implementation.source is None or not implementation.source.has_flags:
        return None
    try:
        python = find_interpreter(options, environment)
    except OptionError:
        # The plan reports it.
        return None
    return signature(implementation.name, python)


def spelt_out(key: str, setting: WrittenSetting, known: Signature) -> str:
    """Return the key of the argument that the command line of a release makes of a key.

    Raises:
        OptionError: the key is the beginning of several flags, or a part of an object.
    """
    name = key.removeprefix(PREFIX)
    first, dot, path = name.partition(".")
    if dot and (first in known.arguments or PREFIX + first in KEYS):
        written = setting.name[: -len(path) - 1]
        accepted = f"one JSON text, as {written}={_as_object(path, setting.value)}"
        raise setting.error("is a part of an object", accepted)
    try:
        return PREFIX + argument_of(name, known)
    except ValueError as error:
        raise setting.error(f"is not clear to {known.engine}'s command line: {error}") from None


def argument_of(name: str, known: Signature) -> str:
    """Return the argument that a flag of a name sets; the name itself if there is none.

    Raises:
        ValueError: the name is the beginning of several flags.
    """
    flags = _flags_of(known)
    if name in flags:
        return flags[name]
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for flag, argument in flags.items():
        parser.add_argument(_flag(flag), dest=argument)
    found, _ = parser.parse_known_args([_flag(name), ""])
    return next(iter(vars(found)), name)


def _flags_of(known: Signature) -> Mapping[str, str]:
    """Return the argument of each flag of a release."""
    names = (name for name, each in known.arguments.items() if each.flag != NO_FLAG)
    more = SERVER_FLAGS if known.listener else ()
    own = {name: name for name in (*names, *known.server, *known.listener, *known.opposites, *more)}
    return {**known.spellings, **own}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_object(path: str, value: str) -> str:
    """Return a value under the keys of a dotted path: `1` at `a.b` is `{"a": {"b": 1}}`."""
    try:
        made = json.loads(value)
    except (ValueError, RecursionError):
        made = value
    for key in reversed(path.split(".")):
        made = {key: made}
    return json.dumps(made)
