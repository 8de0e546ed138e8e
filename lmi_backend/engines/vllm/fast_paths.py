"""What this package adds inside vLLM, and what is lost where a part of it does not fit.

vLLM promises nothing of its inside. Each part is tried when an engine starts, and watched while it
serves. One that fails is off until the engine starts again, and a warning has what was expected,
what came and what it costs. Nothing of vLLM is imported here, so that documents can read the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lmi_backend.errors import LmiError
from lmi_backend.ipc.engine import OPTION_PREFIX
from lmi_backend.options.releases import newer_than_run
from lmi_backend.options.spec import implementations

_log = logging.getLogger(__name__)

FASTER: Final = {
    "own_streams": "five to eight times the CPU of the worker a token: vLLM's server and "
    "AsyncLLM.generate make all answers",
    "single_process": "on a CPU: one process more, half a GiB and a slower step",
}
"""What makes the same answers cheaper, and the cost without it."""
COSTS: Final = FASTER | {
    "resumption": "a crash of a worker fails its streams; queue and decode times are empty",
    "forced_tokens": "a crash of a worker fails sampled streams with a grammar or penalties",
    "load": "no metrics of KV cache, drafts and adapters; a hang is found by silence only",
    "media": "bodies with http: URLs of media are refused; data: URLs have vLLM's own bounds",
    "short_errors": "an error that quotes a long text may take long",
    "asked_name": "answers have the first of the names of the model, not that of the request",
    "prefill": "Anthropic's messages do not continue a last one of the assistant's",
}
"""Each part, and the cost without it; those after `FASTER` change what is answered."""

OPTION: Final = f"{OPTION_PREFIX}vllm_fast_paths"
CHOSEN: Final = f"{OPTION} turns it off"
_COMPARED: Final = "the self-test uses the public API"
_off: dict[str, str] = {}
"""Part to the reason why it is off, in this process."""


def is_on(name: str) -> bool:
    return name not in _off


def choose(is_fast: bool) -> None:
    """Turn off what makes answers cheaper, if the user wants none of it."""
    if not is_fast:
        _off.update(dict.fromkeys(FASTER, CHOSEN))
        _log.info("%s=false: off are %s", OPTION, ", ".join(FASTER))


def turn_off(name: str, expected: str, came: str) -> None:
    """Do without a part for good, and warn once."""
    if _off.get(name, _COMPARED) != _COMPARED:
        return
    _off[name] = f"expected {expected}; {came}"
    _log.warning(
        "vLLM's inside is not as expected: %s is off. Expected: %s. Found: %s. Cost: %s.",
        *(name, expected, came, COSTS[name]),
    )


def leave_out(name: str, why: str) -> None:
    """Do without a part because an option of the user's needs that; warn of nothing."""
    if name not in _off:
        _off[name] = f"{OPTION_PREFIX}{why}"
        _log.info("%s is off: %s", name, _off[name])


@contextmanager
def without(name: str) -> Iterator[None]:
    _off.setdefault(name, _COMPARED)
    try:
        yield
    finally:
        if _off[name] == _COMPARED:
            del _off[name]


@contextmanager
def guarded(name: str, expected: str) -> Iterator[None]:
    """Turn a part off if what is done here fails, and continue without it."""
    try:
        yield
    except LmiError:  # an option's
        raise
    except Exception as error:  # noqa: BLE001  vLLM's loop, or its core, would end with all requests
        turn_off(name, expected, f"{type(error).__name__}: {error}")


def probe(name: str, expected: str, does: Callable[[], object]) -> bool:
    """Try what a part stands on; turn it off if that fails. Return whether it is on."""
    if is_on(name):
        with guarded(name, expected):
            does()
    return is_on(name)


def reason_of(name: str) -> str:
    return _off.get(name, "")


def report() -> tuple[tuple[str, str, str], ...]:
    """Return each part's name, and the reason and cost if it is off; both empty otherwise."""
    return tuple((name, _off.get(name, ""), cost * (name in _off)) for name, cost in COSTS.items())


def say_if_newer(version: str) -> None:
    """Warn of a release that is newer than any that was run, with how much of this fits."""
    held = sum(not reason for _, reason, _ in report())
    parts = f"{held} of {len(COSTS)} fast paths hold"
    if newer := newer_than_run(implementations()["vllm"], version, parts):
        _log.warning("%s", newer)
