"""What this package adds inside vLLM, and what is lost where a part of it does not fit.

vLLM promises nothing of its inside. Each part is tried when an engine starts, and watched while it
serves. One that fails is off until the engine starts again, and a warning has what was expected,
what came and what it costs. Nothing of vLLM is imported here, so that documents can read the table.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lmi_backend.errors import LmiError
from lmi_backend.ipc.engine import OPTION_PREFIX
from lmi_backend.ipc.environment import GROUP_VARIABLE
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.releases import newer_than_run

_log = logging.getLogger(__name__)

FASTER: Final = {
    "own_streams": "five to eight times the CPU of the worker a token: vLLM's server and "
    "AsyncLLM.generate make all answers",
    "fewer_counts": "a tenth more CPU a token: vLLM counts for the metrics page of its server",
    "waits": "on a CPU: half a core while it is idle, and long gaps on some kernels, as vLLM's "
    "processes wait in a loop",
    "single_process": "on a CPU: one process more, half a GiB and a slower step",
    "adapter_table": "an adapter is loaded twice, by the engine and by its server",
}
"""What makes the same answers cheaper, and the cost without it."""
COSTS: Final = FASTER | {
    "resumption": "a crash of a worker fails its streams",
    "forced_tokens": "a crash of a worker fails sampled streams with a grammar or penalties",
    "load": "no metrics of KV cache, drafts and adapters; a hang is found by silence only",
    "defaults": "vLLM's arguments generation_config and override_generation_config change nothing: "
    "the model's generation_config.json is read",
    "lora_rows": "on a CPU with LoRA: the model itself may answer as an adapter does, and log "
    "probabilities of two prompts at once end the engine",
    "seeded_steps": "on a CPU: sampled requests with a seed are refused: each may end the engine",
    "media": "bodies with http: URLs of media are refused; data: URLs have vLLM's own bounds",
    "short_errors": "an error that quotes a long text may take long",
    "asked_name": "answers have the first of the names of the model, not that of the request",
    "whole_tool_calls": "a tool call that is cut is shown as text, and its finish reason may be "
    "tool_calls",
    "prefill": "Anthropic's messages do not continue a last one of the assistant's",
}
"""Each part, and the cost without it; those after `FASTER` change what is answered."""

# vLLM's own processes turn parts off, too. The worker names a file in a variable, which they
# inherit. Each of them appends a line for a part. A line that cannot be written is left out: the
# process logs the same, and must not fail.

_VARIABLE: Final = "LMI_BACKEND_LET_GO"
_LONGEST: Final = 2000
"""Characters of a reason; so a line is written at once."""


def share() -> None:
    """Have this process and those it starts report parts that are off to a worker.

    The file is in the worker's private folder, which is removed with it. Ranks on other machines
    have no such folder.
    """
    if folder := os.environ.get("TMPDIR"):
        path = Path(folder) / f"let-go-{os.environ.get(GROUP_VARIABLE) or os.getpid()}"
        if os.environ.get("RANK", "0") == "0":
            path.unlink(missing_ok=True)  # of a worker that died
        os.environ[_VARIABLE] = str(path)


def tell(name: str, reason: str) -> None:
    """Report to the worker a part that this process turns off."""
    if path := os.environ.get(_VARIABLE):
        line = " ".join([name, *reason[:_LONGEST].split(), f"(in process {os.getpid()})"])
        with suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _take_reported() -> None:
    """Turn off what another process of this engine has turned off; its log has the warning."""
    with suppress(OSError):  # none has turned anything off
        for line in Path(os.environ.get(_VARIABLE, "")).read_bytes().splitlines():
            name, _, reason = line.decode(errors="replace").partition(" ")
            if name in COSTS and reason:
                _off.setdefault(name, reason)


OPTION: Final = f"{OPTION_PREFIX}vllm_fast_paths"
CHOSEN: Final = f"{OPTION} turns it off"
"""The reason of a part that its user turns off."""
_COMPARED: Final = "the self-test takes the public way"
_off: dict[str, str] = {}
"""Part to the reason why it is off, in this process."""


def is_on(name: str) -> bool:
    """Tell whether a part is in use."""
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
    _off[name] = reason = f"expected {expected}; {came}"
    tell(name, reason)
    _log.warning(
        "vLLM's inside is not as expected: %s is off. Expected: %s. Found: %s. Cost: %s.",
        *(name, expected, came, COSTS[name]),
    )


def leave_out(name: str, why: str) -> None:
    """Do without a part because an option of the user's needs that; warn of nothing.

    Args:
        why: which option, and what it does.
    """
    if name not in _off:
        _off[name] = f"{OPTION_PREFIX}{why}"
        _log.info("%s is off: %s", name, _off[name])


@contextmanager
def without(name: str) -> Iterator[None]:
    """Do without a part meanwhile."""
    _off.setdefault(name, _COMPARED)
    try:
        yield
    finally:
        if _off[name] == _COMPARED:
            del _off[name]


@contextmanager
def watched(name: str, expected: str) -> Iterator[None]:
    """Turn a part off if what it does here fails; the error is raised to its caller."""
    try:
        yield
    except LmiError:  # the request's
        raise
    except Exception as error:
        turn_off(name, expected, f"{type(error).__name__}: {error}")
        raise


def probe(name: str, expected: str, does: Callable[[], object]) -> bool:
    """Try what a part stands on; turn it off if that fails. Return whether it is on."""
    if is_on(name):
        # Not `watched`: requests are probed too, and a context of Python's costs more than some do.
        try:
            does()
        except LmiError:  # an option's
            raise
        except Exception as error:  # noqa: BLE001  the engine starts without this part
            turn_off(name, expected, f"{type(error).__name__}: {error}")
    return is_on(name)


def reason_of(name: str) -> str:
    """Return why a part is off; empty if it is on."""
    _take_reported()
    return _off.get(name, "")


def report() -> tuple[tuple[str, str, str], ...]:
    """Return each part's name, and the reason and cost if it is off; both empty otherwise."""
    _take_reported()
    return tuple((name, _off.get(name, ""), cost * (name in _off)) for name, cost in COSTS.items())


def is_newer(version: str) -> bool:
    """Tell whether a release is newer than any that the tests have run on."""
    return bool(newer_than_run(implementations()["vllm"], version))


def say_if_newer(version: str) -> None:
    """Warn of a release that is newer than any that was run, with how much of this fits."""
    held = sum(not reason for _, reason, _ in report())
    known = f"{held} of {len(COSTS)} fast paths hold"
    if newer := newer_than_run(implementations()["vllm"], version, known):
        _log.warning("%s", newer)
