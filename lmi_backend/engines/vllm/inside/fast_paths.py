"""The fast paths into vLLM: which are in use, and why the others are off.

vLLM promises nothing of its inside. Each path is tried when an engine starts, and watched while it
serves. One that fails is turned off for good: its public way answers the same requests, and a
warning has what was expected, what came and what it costs. `needs` refuses an engine that lacks
what no public way replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from lmi_backend.engines.vllm.inside import elsewhere
from lmi_backend.engines.vllm.inside.table import PATHS
from lmi_backend.errors import LmiError, OptionError
from lmi_backend.ipc.engine import OPTION_PREFIX

_log = logging.getLogger(__name__)

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
    elsewhere.tell(name, reason)
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
    for name, reason in elsewhere.reported().items():
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
