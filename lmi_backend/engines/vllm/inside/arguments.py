"""Build AsyncEngineArgs from the plan: typed arguments as they are, the rest by vLLM's parser."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.vllm.inside import compat, fast_paths, media_compat, names
from lmi_backend.errors import ConfigurationError, OptionError
from lmi_backend.options.hints import closest

_NONE: Final = ("", "None")
"""What vLLM's command line reads as None, but not everywhere where it is one."""


def engine_args(config: EngineConfig) -> Any:
    """Return the AsyncEngineArgs of a plan; keep vLLM to the hosts it lists for media.

    Raises:
        OptionError: vLLM has no such argument, or cannot read its text.
    """
    known = compat.engine_arguments()
    for name, text in config.passthrough.items():
        if name not in known:
            hint = closest(name, known)
            problem = f"is neither an option of LMI nor an argument of vLLM {names.vllm_version}"
            raise _error(name, text, problem + hint)
    typed = _read_texts(config.passthrough, known) | config.arguments | _rank_arguments()
    fast_paths.probe(
        "media",
        "a connector whose fetches can be looked at",
        lambda: guard_media(typed.get("allowed_media_domains", ())),
    )
    # The guard has the user's list; vLLM by itself shall fetch nothing.
    typed["allowed_media_domains"] = list(media_compat.NO_HOSTS)
    if plugin := typed.get("reasoning_parser_plugin"):
        compat.import_reasoning_parser(plugin)
    try:
        return names.AsyncEngineArgs(
            model=config.model, **{"disable_log_stats": False, "enable_log_requests": False} | typed
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"vLLM refuses its arguments: {error}") from error


def guard_media(hosts: Sequence[str]) -> None:
    """See `media.guard_media`."""
    from lmi_backend.engines.vllm.inside import media  # noqa: PLC0415  it subclasses one of vLLM's

    media.guard_media(hosts)


def is_rank() -> bool:
    """Tell whether mpirun started this process as one of a group of ranks."""
    return "RANK" in os.environ


def _rank_arguments() -> dict[str, Any]:
    """Return vLLM's arguments of a rank, and set what it reads nowhere else; none outside a group.

    vLLM must not have been used yet.
    """
    if not is_rank():
        return {}
    # Each rank has its core in this process.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return {"distributed_executor_backend": compat.EXTERNAL_LAUNCHER}


def _read_texts(passthrough: dict[str, str], known: dict[str, bool]) -> dict[str, Any]:
    if not passthrough:
        return {}
    parser = compat.argument_parser()
    # It prints its usage and leaves the process, although it was told to raise.
    parser.error = _refuse  # type: ignore[method-assign]
    actions = {action.dest: action for action in parser._actions}
    for name, text in passthrough.items():
        if name not in actions:
            raise _error(name, text, "is set by vLLM itself, which has no flag for it")
    return {
        name: None if known[name] and text in _NONE else _read(parser, actions[name], text)
        for name, text in passthrough.items()
    }


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def _read(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> Any:
    try:
        if action.nargs == 0:
            return _read_boolean(parser, action, text)
        namespace = parser.parse_args(_argv(action, text))
    # Some of its types look a word up.
    except (argparse.ArgumentError, LookupError, TypeError, ValueError) as error:
        raise _error(action.dest, text, f"is refused by vLLM: {error}") from error
    return getattr(namespace, action.dest)


def _read_boolean(parser: argparse.ArgumentParser, action: argparse.Action, text: str) -> bool:
    """Return the value of a flag, if one of its spellings has it, or its absence.

    Releases spell "no" in several ways, so each spelling is read.
    """
    wanted = {"true": True, "false": False}.get(text.lower())
    if wanted is None:
        raise ValueError("accepted: true or false")
    for words in (*([each] for each in action.option_strings), []):
        if getattr(parser.parse_args(words), action.dest) is wanted:
            return text.lower() == "true"
    raise ValueError(f"its command line has no flag for {text}")


def _argv(action: argparse.Action, text: str) -> list[str]:
    """Write an option that takes a value as command-line arguments, as LMI does."""
    flag = action.option_strings[0]
    if action.nargs not in (None, "?"):
        values = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
        return [flag, *(str(value).strip() for value in values)]
    return [f"{flag}={text}"]


def _error(name: str, text: str, problem: str) -> OptionError:
    # The reader of the file knows the line; the load error gets it there.
    return OptionError(problem, option=f"option.{name}", value=text, origin="vLLM")
