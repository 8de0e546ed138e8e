"""What this package does with vLLM's engine, where releases differ; names.py has its names.

What is needed may be something else than it was. Where either can be used, it is. Else the engine
is refused, by the name.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import inspect
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NoReturn, TypeVar, get_args

import msgspec

from lmi_backend.engines.vllm import fast_paths, names
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.releases import releases_run
from lmi_backend.printable import cut, with_options

ANSWER_SECONDS: Final = 120.0
"""For a few tokens of a core that has started: much more than any takes."""
T = TypeVar("T")
_OURS: Final = str(Path(__file__).parents[3])


def checked(value: Any, name: str, *members: str) -> Any:
    if lacking := [each for each in members if not hasattr(value, each)]:
        problem = f"{name} gives a {type(value).__name__}, which has no {', '.join(lacking)}"
        raise unservable(problem)
    return value


def unservable(problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"vLLM {names.vllm_version} cannot be served: {problem}; "
        f"releases that were run: {releases_run('vllm')}"
    )


@contextmanager
def naming() -> Iterator[None]:
    """Have an error of a start that only another vLLM can explain say where it was."""
    try:
        yield
    except (AttributeError, ImportError, TypeError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename != names.__file__]
        # What vLLM raises in its own code may be a model's fault.
        if isinstance(error, names.MissingNameError):
            raise unservable(str(error)) from error
        if own[-1].filename.startswith(_OURS):
            raise unservable(f"`{own[-1].line}` raises {type(error).__name__}: {error}") from error
        raise


async def settled(value: Any) -> Any:
    """Return what a function of vLLM's gives, whether it is a coroutine in this release or not."""
    return await value if inspect.isawaitable(value) else value


async def needed(what: str, does: Awaitable[T]) -> T:
    """Return what comes of something that an engine cannot do without."""
    try:
        return await asyncio.wait_for(does, ANSWER_SECONDS)
    except asyncio.TimeoutError as error:
        raise unservable(f"{what} does not end in {ANSWER_SECONDS:.0f} s") from error
    except ConfigurationError:
        raise
    except Exception as error:
        raise unservable(f"{what} raises {type(error).__name__}: {error}") from error


async def answer_of(engine: Any, name: str) -> Any:
    return await needed(f"AsyncLLM.{name}", settled(getattr(engine, name)()))


EXTERNAL_LAUNCHER = "external_launcher"
_TOGETHER: Final = "512"
"""Outputs of a step that one turn of the event loop processes, in 3 ms."""


def take_outputs(engine: Any) -> None:
    """Have an AsyncLLM take the outputs of its core; called on the event loop.

    Its `add_request` does since 0.16, only its `generate` before.
    """
    if fast_paths.is_on("own_streams"):
        # What is sent of a step is one frame, then. vLLM's 128 are for outputs that take it longer.
        os.environ.setdefault("VLLM_V1_OUTPUT_PROC_CHUNK_SIZE", _TOGETHER)
    if run := getattr(engine, "_run_output_handler", None):
        run()


def cut_messages() -> None:
    """Have vLLM's server cut the text of an error, which it looks for paths in, and name options.

    0.32 looks with an expression that takes the square of the text, on its only event loop: a
    reference of 120 kB, which the text quotes, takes a minute and a half.
    """
    is_replaced = False
    for name, module in list(sys.modules.items()):
        own = getattr(module, "__dict__", {}).get("sanitize_message")
        if name.startswith("vllm.") and callable(own):
            module.sanitize_message = partial(_sanitized, own)  # type: ignore[attr-defined]
            is_replaced = True
    if not is_replaced:
        raise LookupError("no module of it has sanitize_message")


def _sanitized(sanitize: Callable[..., str], *given: Any, **named: Any) -> str:
    return sanitize(*map(_cut, given), **{name: _cut(value) for name, value in named.items()})


def _cut(value: Any) -> Any:
    # The server would leave `<path>` of the model's folder.
    named = partial(re.sub, r"\A\S+(?= is not a multimodal model)", "The model")
    return with_options(cut(named(value))) if isinstance(value, str) else value


def certain_logprobs(ids: Sequence[int]) -> Any:
    """Return what a core says of tokens that it was certain of, and names no other for."""
    import numpy as np  # noqa: PLC0415  vLLM's processes have it

    count = len(ids)
    tokens = np.array(ids, np.int32).reshape(count, 1)
    return names.LogprobsLists(tokens, np.zeros((count, 1), np.float32), np.ones(count, np.int32))


def logprobs_after(lists: Any, count: int) -> Any:
    members = ("logprob_token_ids", "logprobs", "sampled_token_ranks")
    return lists._replace(**{name: getattr(lists, name)[count:] for name in members})


def cached_tokens(output: Any) -> int | None:
    """Return how much of a prompt was cached, by an output of vLLM or its core; None if unknown."""
    count = getattr(getattr(output, "prefill_stats", None) or output, "num_cached_tokens", None)
    return count if type(count) is int and count >= 0 else None


def requests_of_copies(engine: Any) -> dict[int, int]:
    """Return how many requests each copy of a data-parallel engine has; none where one copy runs.

    None before 0.32 either, which counts them for its own choice of a copy.
    """
    core = engine.engine_core
    counts = getattr(core, "engine_inflight", None)
    if counts is None:
        return {}
    copies = zip(core.engine_ranks_managed, core.core_engines, strict=False)
    return {number: counts[identity] for number, identity in copies}


def engine_arguments() -> dict[str, bool]:
    """Return the arguments that AsyncEngineArgs takes, and whether each may be None."""
    fields = dataclasses.fields(names.AsyncEngineArgs)
    return {field.name: type(None) in get_args(field.type) for field in fields}


def argument_parser() -> argparse.ArgumentParser:
    add = names.AsyncEngineArgs.add_cli_args
    # The engine's arguments too, whatever a release adds by itself.
    whole = {_WHOLE: False} if _WHOLE in inspect.signature(add).parameters else {}
    own = subclass_of(names.FlexibleArgumentParser, _Parser)(add_help=False, exit_on_error=False)
    parser: argparse.ArgumentParser = checked(
        add(own, **whole), "AsyncEngineArgs.add_cli_args", "parse_args"
    )
    return parser


class _Parser:
    """What a parser of vLLM's does besides its own work."""

    def error(self, message: str) -> NoReturn:
        """Raise: vLLM's prints its usage and leaves the process, although it was told to raise."""
        raise ValueError(message)


def subclass(instance: Any, kind: type, *may_lack: str, **members: Any) -> None:
    """Have an object of vLLM's do what a class adds to its own, for all that have the object."""
    own: Any = type(instance)
    if not isinstance(instance, kind):
        changed(instance, __class__=subclass_of(own, kind, *may_lack), **members)


@cache
def subclass_of(own: Any, kind: Any, *may_lack: str) -> Any:
    """Return a class of vLLM's whose methods another one overrides; its `super()` is vLLM's.

    Args:
        may_lack: methods that only some releases have.

    Raises:
        TypeError: vLLM's class lacks one of the others, so nothing would call it.
    """
    kinds = property, FunctionType, classmethod
    methods = {name for name, each in vars(kind).items() if isinstance(each, kinds)}
    methods = {name for name in methods if not name.startswith("_")}
    if lacking := sorted(methods - {*dir(own)} - {*may_lack}):
        raise TypeError(f"{own.__name__} has no {', '.join(lacking)}")

    def mro(cls: type) -> list[type]:
        return [cls, *kind.__mro__[:-1], *own.__mro__]

    # As its first base, `kind` would decide the layout of objects; one under an ABC has another.
    above = type("_Above", (type(own),), {"mro": mro})
    return above(own.__name__, (own,), {"__module__": kind.__module__})


def replaced(instance: Any, **values: Any) -> Any:
    try:
        return changed(copy(instance), **values)
    except AttributeError:  # a release may freeze it
        is_struct = isinstance(instance, msgspec.Struct)
        return (msgspec.structs.replace if is_struct else dataclasses.replace)(instance, **values)


def changed(instance: Any, **values: Any) -> Any:
    """Return an object of vLLM's, for all that have it, with other values."""
    for name, value in values.items():
        setattr(instance, name, value)
    return instance


def num_output_tokens(detokenizer: Any) -> int:
    count = getattr(detokenizer, "num_output_tokens", None)
    return len(detokenizer.output_token_ids) if count is None else count()  # 0.16


def prompt_of(ids: Sequence[int]) -> Any:
    if names.tokens_input is None:  # as its documentation has it
        return {"prompt_token_ids": ids}
    return names.tokens_input(ids)


def use_core_client(client: Any) -> None:
    """Have each AsyncLLM of this process, which is a rank, speak to its core by another class."""
    names.EngineCoreClient.make_async_mp_client = staticmethod(client)


def run_headless(arguments: Any) -> None:
    """Run the part of a machine after the first one (0.12 and later), until it exits."""
    fields = {each.name: getattr(arguments, each.name) for each in dataclasses.fields(arguments)}
    given = {"api_server_count": 0, "reasoning_parser_plugin": ""} | fields
    names.run_headless(argparse.Namespace(**given))


def failed_outputs(request_id: str) -> Any:
    reason = getattr(names.FinishReason, "ERROR", names.FinishReason.ABORT)
    output = names.EngineCoreOutput(request_id=request_id, new_token_ids=[], finish_reason=reason)
    return names.EngineCoreOutputs(outputs=[output])


_WHOLE: Final = "async_args_only"
