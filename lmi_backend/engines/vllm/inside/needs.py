"""What is done with a vLLM whose needed names are there, and may be something else than they were.

Where either can be used, it is. Else the engine is refused, by the name.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lmi_backend.engines.vllm.inside import names
from lmi_backend.errors import ConfigurationError
from lmi_backend.options.releases import releases_run

_SHOWN: Final = 200
_ANSWER_SECONDS: Final = 60.0
"""For the first answer of a core after its start, which needs no step of the model."""
_OURS: Final = str(Path(__file__).parents[3])


def checked(found: Any, name: str, *members: str) -> Any:
    """Return what a function of vLLM's gave, if it is what is needed.

    Raises:
        ConfigurationError: it lacks one of the members.
    """
    if lacking := [each for each in members if not hasattr(found, each)]:
        problem = f"{name} gives a {type(found).__name__}, which has no {', '.join(lacking)}"
        raise unservable(problem)
    return found


def engine(found: Any) -> Any:
    """Return an AsyncLLM, if what is read of it is there and can be read as it is.

    Raises:
        ConfigurationError: it is not so.
    """
    checked(found, "AsyncLLM.from_vllm_config", "generate", "errored")
    checked(found.model_config, "AsyncLLM.model_config", "max_model_len")
    if not isinstance(length := found.model_config.max_model_len, int):
        raise unservable(f"ModelConfig.max_model_len is a {type(length).__name__}")
    checked(found.vllm_config, "AsyncLLM.vllm_config", "model_config")
    if not isinstance(found.errored, bool):
        raise unservable(f"AsyncLLM.errored is a {type(found.errored).__name__}")
    return found


def vocabulary(model_config: Any) -> int:
    """Return how many tokens a model has.

    Raises:
        ConfigurationError: it is no number.
    """
    found = model_config.get_vocab_size()
    if not isinstance(found, int):
        raise unservable(f"ModelConfig.get_vocab_size gives a {type(found).__name__}")
    return found


def unservable(problem: str) -> ConfigurationError:
    """Return the error of a vLLM that lacks what has no public way."""
    return ConfigurationError(
        f"vLLM {names.vllm_version} cannot be served: {problem}; "
        f"releases that were run: {releases_run('vllm')}"
    )


@contextmanager
def naming() -> Iterator[None]:
    """Have an error of a start that only another vLLM can explain say where it was.

    Raises:
        ConfigurationError: a name of vLLM's is gone, or is something else.
    """
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


async def settled(found: Any) -> Any:
    """Return what a function of vLLM's gives, whether it is a coroutine in this release or not."""
    return await found if inspect.isawaitable(found) else found


async def answer(engine: Any, name: str) -> Any:
    """Return what a method of the engine gives that takes nothing.

    Raises:
        ConfigurationError: it raises something, or gives nothing in time.
    """
    try:
        return await asyncio.wait_for(settled(getattr(engine, name)()), _ANSWER_SECONDS)
    except asyncio.TimeoutError as error:
        problem = (
            "the engine of AsyncLLM.from_vllm_config gives no answer to "
            f"AsyncLLM.{name} in {_ANSWER_SECONDS:.0f} s"
        )
        raise unservable(problem) from error
    except Exception as error:
        problem = f"AsyncLLM.{name} raises {type(error).__name__}: {error}"
        raise unservable(problem) from error


async def supported_tasks(engine: Any) -> Any:
    """Return the names of what an engine can do: the first question to its core.

    Raises:
        ConfigurationError: they are no names, or the core does not answer.
    """
    found = await answer(engine, "get_supported_tasks")
    if isinstance(found, Iterator):  # it could be read only once
        found = tuple(found)
    try:
        are_words = all(isinstance(each, str) for each in found)
    except TypeError:
        are_words = False
    if not are_words:
        raise unservable(f"AsyncLLM.get_supported_tasks gives {found!r}"[:_SHOWN])
    return found
