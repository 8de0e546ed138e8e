"""How vLLM is started: its arguments, what its processes load of this package, when they wait."""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines import closed_groups
from lmi_backend.engines.vllm import (
    compat,
    cpu,
    fast_paths,
    images,
    media,
    names,
    processor,
    resume,
)
from lmi_backend.errors import ConfigurationError, OptionError
from lmi_backend.options.hints import closest

_PLUGINS: Final = Path(__file__).parent / "plugin"
_NAME: Final = "lmi-backend"


def install_plugin(name: str) -> None:
    """Let this process and those it starts find a plugin, also if a user lists others."""
    folder = str(_PLUGINS / name)
    if folder not in sys.path:
        sys.path.append(folder)
    listed = os.environ.get("VLLM_PLUGINS")
    if listed is not None and _NAME not in listed.split(","):
        os.environ["VLLM_PLUGINS"] = f"{listed},{_NAME}"


def enter_process() -> None:
    """Prepare a process of vLLM's, which calls this as a plugin, before it takes memory."""
    closed_groups.install()
    _wait_at_barrier()


# The processes of a spare wait before they load a model. vLLM loads its general plugins in each of
# its processes, after the imports and before a process takes memory of a device. Ours waits there
# for a lock, which the worker holds until it is needed. The lock goes with the worker:
# nobody waits for one that has died.

_VARIABLE: Final = "LMI_BACKEND_GATE"


class Barrier:
    """Holds the processes that an engine in this process starts."""

    def __init__(self) -> None:
        self._path = Path(tempfile.mkdtemp(prefix="gate-"), "lock")
        self._lock = self._path.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.environ[_VARIABLE] = str(self._path)

    def expect(self, config: Any) -> None:
        """Choose who waits.

        The process that loads the model does: the core, or each rank, where these are processes
        that the core starts.
        """
        parallel = config.parallel_config
        has_ranks = parallel.distributed_executor_backend == "mp"
        ranks = parallel.world_size if has_ranks else 1
        what = {
            "front": os.getpid(),
            "has_ranks": has_ranks,
            "number": ranks * getattr(parallel, "data_parallel_size_local", 1),
            "worker": str(parallel.worker_cls),
        }
        # Others look at it meanwhile.
        draft = self._path.with_name("draft")
        draft.write_text(json.dumps(what), encoding="utf-8")
        draft.rename(self._path.with_name("what"))

    @property
    def is_reached(self) -> bool:
        """Whether all processes wait."""
        what = self._path.with_name("what")
        if not what.exists():
            return False
        number: int = json.loads(what.read_text(encoding="utf-8"))["number"]
        return len(list(self._path.parent.glob("*.waits"))) >= number

    def open(self) -> None:
        """Let all of them load the model, now and later."""
        os.environ.pop(_VARIABLE, None)
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()


def _wait_at_barrier() -> None:
    if (path := os.environ.get(_VARIABLE)) is None:
        return
    # Only processes of vLLM come here, which have it.
    import multiprocessing  # noqa: PLC0415

    if (parent := multiprocessing.parent_process()) is None:
        return
    lock = Path(path)
    what = json.loads(lock.with_name("what").read_text(encoding="utf-8"))
    if (parent.pid == what["front"]) == what["has_ranks"]:
        return
    module, _, name = what["worker"].rpartition(".")
    if module:
        getattr(importlib.import_module(module), name)
    lock.with_name(f"{os.getpid()}.waits").touch()
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)


_NONE: Final = ("", "None")
"""What vLLM's command line reads as None, but not everywhere where it is one."""


def engine_args(config: EngineConfig) -> Any:
    """Return the AsyncEngineArgs of a plan; keep vLLM to the hosts it lists for media."""
    fields = compat.engine_arguments()
    for name, text in config.passthrough.items():
        if name not in fields:
            hint = closest(name, fields)
            problem = f"is neither an option of LMI nor an argument of vLLM {names.vllm_version}"
            raise _error(name, text, problem + hint)
    typed = _read_texts(config.passthrough, fields) | config.arguments | _rank_arguments()
    typed.setdefault("worker_cls", cpu.worker_class())
    fast_paths.probe(
        "media",
        "a connector whose fetches can be looked at",
        lambda: media.guard_media(typed.get("allowed_media_domains", ())),
    )
    # The guard has the user's list; vLLM by itself shall fetch nothing.
    typed["allowed_media_domains"] = list(images.NO_HOSTS)
    if plugin := typed.get("reasoning_parser_plugin"):
        # vLLM does so in its own command alone.
        names.ReasoningParserManager.import_reasoning_parser(plugin)
    try:
        return names.AsyncEngineArgs(
            # Without the loggers of vLLM's metrics page; ours are asked all the same.
            model=config.model,
            **{"disable_log_stats": True, "enable_log_requests": False} | typed,
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"vLLM refuses its arguments: {error}") from error


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


def _read_texts(passthrough: dict[str, str], fields: dict[str, bool]) -> dict[str, Any]:
    if not passthrough:
        return {}
    parser = compat.argument_parser()
    actions = {action.dest: action for action in parser._actions}
    for name, text in passthrough.items():
        if name not in actions:
            raise _error(name, text, "is set by vLLM itself, which has no flag for it")
    return {
        name: None if fields[name] and text in _NONE else _read(parser, actions[name], text)
        for name, text in passthrough.items()
    }


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


def prepare_processes(config: EngineConfig) -> None:
    """Choose what vLLM's processes load of this package, before any of them starts."""
    fast_paths.choose(config.fast_paths)
    install_plugin("each_process")
    if fast_paths.probe("forced_tokens", "a class of logits processors", resume.forced_tokens):
        install_plugin("forced_tokens")


def create_engine(
    arguments: Any, loggers: list[Any], on_config: Callable[[Any], None] = lambda _config: None
) -> Any:
    """Start the engine of these arguments; blocks until its core has loaded the model.

    Args:
        on_config: called with the engine's config before any process is started.
    """
    config = compat.checked(
        arguments.create_engine_config(names.UsageContext.ENGINE_CONTEXT),
        "AsyncEngineArgs.create_engine_config",
        "parallel_config",
    )
    chosen = getattr(arguments, "distributed_executor_backend", None)
    with cpu.compute_alone(config, chosen=chosen):
        on_config(config)
        engine = names.AsyncLLM.from_vllm_config(
            config,
            stat_loggers=loggers,
            enable_log_requests=arguments.enable_log_requests,
            disable_log_stats=arguments.disable_log_stats,
        )
    return engine


def attach(engine: Any, *, is_counted: bool = False) -> None:
    """Put the fast paths into an AsyncLLM, or its double, whose core has started."""
    if not fast_paths.probe(
        "resumption",
        "an output processor to subclass",
        lambda: processor.attach(engine, is_counted=is_counted),
    ):
        fast_paths.turn_off("own_streams", "an output processor to subclass", "it is off")
    if processor.is_traced(engine):
        fast_paths.leave_out("own_streams", "otlp_traces_endpoint has vLLM count each output")
