"""The fast paths into vLLM: which there are, which are in use, and why the others are off.

vLLM promises nothing of its inside. Each path is tried when an engine starts, and watched while it
serves. One that fails is turned off for good: its public way answers the same requests, and a
warning has what was expected, what came and what it costs. Nothing of vLLM is imported here, so
that documents and commands can read the table.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import LmiError, OptionError
from lmi_backend.ipc.engine import OPTION_PREFIX
from lmi_backend.ipc.environment import GROUP_VARIABLE
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.releases import newer_than_run

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FastPath:
    """One place where this package reaches into vLLM."""

    name: str
    purpose: str
    """What it is for; a noun phrase."""
    public_way: str
    """What answers the same requests without it; empty if nothing does."""
    cost: str
    """What the public way costs, or what fails without the path."""


PATHS: Final = (
    FastPath(
        name="own_streams",
        purpose="answers made of the core's outputs without vLLM's objects for each token",
        public_way="AsyncLLM.generate and the events of vLLM's server, as they come",
        cost="five to eight times the CPU of the worker a token",
    ),
    FastPath(
        name="fewer_counts",
        purpose="none of the counts that only the metrics page of vLLM's server shows",
        public_way="vLLM counts everything",
        cost="about a quarter more CPU a token",
    ),
    FastPath(
        name="waits",
        purpose="processes on a CPU that sleep while they wait for each other",
        public_way="vLLM's processes wait in a loop",
        cost="on a CPU: half a core while it is idle, and long gaps on some kernels",
    ),
    FastPath(
        name="single_process",
        purpose="a core of one rank on a CPU that computes in its own process",
        public_way="vLLM's own worker process",
        cost="on a CPU: one process more, half a GiB and a slower step",
    ),
    FastPath(
        name="adapter_table",
        purpose="one table of LoRA adapters for the engine and its server",
        public_way="the server's own table, told with the first request of each adapter",
        cost="an adapter is loaded twice",
    ),
    FastPath(
        name="resumption",
        purpose="requests that resume from tokens which another worker generated",
        public_way="none for a request whose worker died: it fails with an error that says so",
        cost="a crash of a worker fails its streams",
    ),
    FastPath(
        name="forced_tokens",
        purpose="resumption of requests with a grammar or penalties, by a plugin in vLLM's core",
        public_way="such requests resume only if they are greedy or have a seed",
        cost="a crash of a worker fails sampled streams with a grammar or penalties",
    ),
    FastPath(
        name="load",
        purpose="how many requests, tokens and adapters the engine has",
        public_way="the worker counts its own requests",
        cost="no metrics of KV cache, drafts and adapters; a hang is found by silence only",
    ),
    FastPath(
        name="defaults",
        purpose="sampling values of the model's own, where a request gives none",
        public_way="the model's generation_config.json, read by this package",
        cost="vLLM's arguments generation_config and override_generation_config change nothing",
    ),
    FastPath(
        name="lora_rows",
        purpose="the model itself next to its adapters, where LoRA runs on a CPU",
        public_way="vLLM's code, whose engine may end",
        cost="on a CPU with LoRA: the model itself may answer as an adapter does, and log "
        "probabilities of two prompts at once end the engine",
    ),
    FastPath(
        name="seeded_steps",
        purpose="seeded requests on a CPU, whose prompt may be computed in several steps",
        public_way="such requests are refused, unless they are greedy",
        cost="on a CPU: sampled requests with a seed are refused, as each may end the engine",
    ),
    FastPath(
        name="media",
        purpose="media that are fetched from listed hosts, whose addresses are looked at",
        public_way="no URL is fetched; data: URLs are read within vLLM's own bounds",
        cost="bodies with http: URLs of media are refused",
    ),
    FastPath(
        name="short_errors",
        purpose="errors that are cut before vLLM looks for paths in them",
        public_way="vLLM's errors, as they are",
        cost="an error that quotes a long text may take long",
    ),
    FastPath(
        name="asked_name",
        purpose="answers that name their model as the client does",
        public_way="the first of the model's names in each answer",
        cost="bills and traces that go by the answer's name have another",
    ),
    FastPath(
        name="whole_tool_calls",
        purpose="whole answers that show of a cut tool call what streams show",
        public_way="vLLM's whole answers, as they are",
        cost="a tool call that is cut is shown as text, and its finish reason may be tool_calls",
    ),
    FastPath(
        name="prefill",
        purpose="Anthropic's messages whose last one is the assistant's, which is continued",
        public_way="vLLM's server, which begins a new message",
        cost="an answer does not continue what its client began",
    ),
)


# Paths that vLLM's own processes turn off. The worker names a file in a variable, which its
# processes inherit. Each of them appends a line for a path. A line that cannot be written is left
# out: the process logs the same, and must not fail.

_VARIABLE: Final = "LMI_BACKEND_LET_GO"
_LONGEST: Final = 2000
"""Characters of a reason; so a line is written at once."""


def share() -> None:
    """Have this process and those it starts report paths that are off to a worker.

    The file is in the worker's private folder, which is removed with it. Ranks on other machines
    have no such folder.
    """
    if folder := os.environ.get("TMPDIR"):
        path = Path(folder) / f"let-go-{os.environ.get(GROUP_VARIABLE) or os.getpid()}"
        if os.environ.get("RANK", "0") == "0":
            path.unlink(missing_ok=True)  # of a worker that died
        os.environ[_VARIABLE] = str(path)


def tell(name: str, reason: str) -> None:
    """Report to the worker a path that this process turns off."""
    if path := os.environ.get(_VARIABLE):
        line = " ".join([name, *reason[:_LONGEST].split(), f"(in process {os.getpid()})"])
        with suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def reported() -> Mapping[str, str]:
    """Return each path that any of these processes has turned off, and the reason."""
    path = os.environ.get(_VARIABLE, "")
    try:
        size = os.stat(path).st_size if path else 0
    except OSError:  # nobody has let one go
        size = 0
    return _read(path, size) if size else {}


@lru_cache(maxsize=1)
def _read(path: str, size: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path(path).read_bytes()[:size].decode(errors="replace").splitlines():
            name, _, reason = line.partition(" ")
            found.setdefault(name, reason)
    return found


OPTION: Final = f"{OPTION_PREFIX}vllm_fast_paths"
_COMPARED: Final = "the self-test takes the public way"
CHOSEN: Final = f"{OPTION} turns it off"
"""The reason of a path that its user turns off."""


_BY_NAME: Final = {fast_path.name: fast_path for fast_path in PATHS}
_off: dict[str, str] = {}
"""Path to the reason why it is off, in this process."""


def is_on(name: str) -> bool:
    """Tell whether a path is in use."""
    return name not in _off


def turn_off(name: str, expected: str, came: str) -> None:
    """Take the public way of a path for good, and warn once."""
    if _off.get(name, _COMPARED) != _COMPARED:
        return
    fast_path = _BY_NAME[name]
    _off[name] = reason = f"expected {expected}; {came}"
    tell(name, reason)
    _log.warning(
        "vLLM's inside is not as expected: %s (%s) is off. Expected: %s. Found: %s. Instead: %s. "
        "Cost: %s.",
        *(name, fast_path.purpose, expected, came, fast_path.public_way, fast_path.cost),
    )


def leave_out(name: str, why: str) -> None:
    """Take the public way of a path because an option of the user's needs it; warn of nothing.

    Args:
        why: which option, and what it does.
    """
    if name not in _off:
        _off[name] = f"{OPTION_PREFIX}{why}"
        _log.info("%s (%s) is off: %s", name, _BY_NAME[name].purpose, _off[name])


@contextmanager
def without(names: Collection[str]) -> Iterator[None]:
    """Take the public way of some paths meanwhile."""
    _off.update({name: _COMPARED for name in names if name not in _off})
    try:
        yield
    finally:
        for name in [name for name in names if _off[name] == _COMPARED]:
            del _off[name]


@contextmanager
def watched(name: str, expected: str) -> Iterator[None]:
    """Turn a path off if what it does here fails; the error is raised to its caller."""
    try:
        yield
    except LmiError:  # the request's
        raise
    except Exception as error:
        turn_off(name, expected, f"{type(error).__name__}: {error}")
        raise


def probe(name: str, expected: str, does: Callable[[], object]) -> bool:
    """Try what a path stands on; turn it off if that fails. Return whether it is on."""
    if is_on(name):
        # Not `watched`: requests are probed too, and a context of Python's costs more than some do.
        try:
            does()
        except LmiError:  # an option's
            raise
        except Exception as error:  # noqa: BLE001  the engine starts without this path
            turn_off(name, expected, f"{type(error).__name__}: {error}")
    return is_on(name)


def states() -> Mapping[str, str]:
    """Return each path's name and why it is off; empty for one that is on."""
    _take_reported()
    return {fast_path.name: _off.get(fast_path.name, "") for fast_path in PATHS}


def report() -> tuple[tuple[str, str, str], ...]:
    """Return each path's name, and the reason and cost if it is off; both empty otherwise.

    It is the same object until one is turned off.
    """
    _take_reported()
    return _report(tuple(_off.items()))


def _take_reported() -> None:
    """Turn off what another process of this engine has turned off; its log has the warning."""
    for name, reason in reported().items():
        if name in _BY_NAME:
            _off.setdefault(name, reason)


@lru_cache(maxsize=1)
def _report(off: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    reasons = dict(off)
    return tuple(
        (
            fast_path.name,
            reasons.get(fast_path.name, ""),
            fast_path.cost if fast_path.name in reasons else "",
        )
        for fast_path in PATHS
    )


def choose(text: str) -> None:
    """Turn off what the option turns off.

    Args:
        text: the names of some, with commas between; empty for none.

    Raises:
        OptionError: a name is none of these.
    """
    names = text.split(",") if text else []
    for name in names:
        if name not in _BY_NAME:
            raise OptionError(
                "names no fast path of vLLM",
                option=OPTION,
                origin="vLLM",
                value=name,
                accepted=f"some of {', '.join(_BY_NAME)}",
            )
        _off.setdefault(name, CHOSEN)
    if names:
        _log.info("%s: off are %s", OPTION, ", ".join(names))


def is_newer(version: str) -> bool:
    """Tell whether a release is newer than any that the tests have run on."""
    return bool(newer_than_run(implementations()["vllm"], version))


def say_if_newer(version: str, states: Mapping[str, str]) -> None:
    """Warn of a release that is newer than any that was run, with how many fast paths hold.

    Args:
        states: each fast path and why it is off; empty for one that holds.
    """
    count = sum(not reason for reason in states.values())
    held = f"{count} of {len(states)} fast paths hold"
    if newer := newer_than_run(implementations()["vllm"], version, held):
        _log.warning("%s", newer)
