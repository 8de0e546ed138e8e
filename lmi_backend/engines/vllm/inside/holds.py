"""What this package uses inside vLLM: one hold for each fast path, and its public way.

vLLM promises none of these names. Each hold is probed when an engine starts, and watched while it
serves. A hold that fails is released for good: its public way answers the same requests, and a
warning has what was expected, what came and what it costs. A hold without a public way is needed:
an engine without it is refused before its weights are loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from lmi_backend.engines.vllm.inside import elsewhere
from lmi_backend.engines.vllm.inside.table import HOLDS
from lmi_backend.errors import LmiError, OptionError
from lmi_backend.ipc.engine import OPTION_PREFIX

_log = logging.getLogger(__name__)

OPTION: Final = f"{OPTION_PREFIX}vllm_fast_paths"
CHOSEN: Final = f"{OPTION} turns it off"
"""The reason of a hold that its user turns off."""


_BY_NAME: Final = {hold.name: hold for hold in HOLDS}
_off: dict[str, str] = {}
"""Hold to the reason why it was released, in this process."""


def is_held(name: str) -> bool:
    """Tell whether a hold is in use."""
    return name not in _off


def let_go(name: str, expected: str, came: str) -> None:
    """Take the public way of a hold for good, and warn once."""
    if name in _off:
        return
    hold = _BY_NAME[name]
    _off[name] = reason = f"expected {expected}; {came}"
    elsewhere.tell(name, reason)
    _log.warning(
        "vLLM's inside is not as expected: %s (%s) is off. Expected: %s. Found: %s. Instead: %s. "
        "Cost: %s.",
        *(name, hold.purpose, expected, came, hold.public_way, hold.cost),
    )


def leave_out(name: str, why: str) -> None:
    """Take the public way of a hold because an option of the user's needs it; warn of nothing.

    Args:
        why: which option, and what it does.
    """
    if name not in _off:
        _off[name] = f"{OPTION_PREFIX}{why}"
        _log.info("%s (%s) is off: %s", name, _BY_NAME[name].purpose, _off[name])


@contextmanager
def held(name: str, expected: str) -> Iterator[None]:
    """Let a hold go if what it does here fails; the error is raised to its caller."""
    try:
        yield
    except LmiError:  # the request's
        raise
    except Exception as error:
        let_go(name, expected, f"{type(error).__name__}: {error}")
        raise


def probe(name: str, expected: str, does: Callable[[], object]) -> bool:
    """Try what a hold stands on; let it go if that fails. Return whether it is held."""
    if is_held(name):
        try:
            with held(name, expected):
                does()
        except LmiError:  # an option's
            raise
        except Exception:  # noqa: BLE001  it was warned of; the engine starts without this hold
            return False
    return is_held(name)


def states() -> Mapping[str, str]:
    """Return each hold's name and why it is off; empty for one that is held."""
    _take_reported()
    return {hold.name: _off.get(hold.name, "") for hold in HOLDS}


def report() -> tuple[tuple[str, str, str], ...]:
    """Return each hold's name, and the reason and cost if it was released; both empty otherwise.

    It is the same object until one is released.
    """
    _take_reported()
    return _report(tuple(_off.items()))


def _take_reported() -> None:
    """Release what another process of this engine has released; its log has the warning."""
    for name, reason in elsewhere.reported().items():
        if name in _BY_NAME:
            _off.setdefault(name, reason)


@lru_cache(maxsize=1)
def _report(off: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    reasons = dict(off)
    return tuple(
        (hold.name, reasons.get(hold.name, ""), hold.cost if hold.name in reasons else "")
        for hold in HOLDS
    )


def choose(text: str) -> None:
    """Turn off what the option turns off.

    Args:
        text: `true` or nothing for none; `false` for all; else the names of some.

    Raises:
        OptionError: a name is none of these.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if [word.lower() for word in words] in ([], ["true"]):
        return
    names = list(_BY_NAME) if [word.lower() for word in words] == ["false"] else words
    for name in names:
        if name not in _BY_NAME:
            raise OptionError(
                "names no fast path of vLLM",
                option=OPTION,
                origin="vLLM",
                value=name,
                accepted=f"true, false or some of {', '.join(_BY_NAME)}",
            )
        _off.setdefault(name, CHOSEN)
    _log.info("%s: off are %s", OPTION, ", ".join(names))
