"""What becomes of a key: the table decides, then the engine's signature, then the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.options.engine_spec import SPECS, implementations
from lmi_backend.options.option import PREFIX, Status
from lmi_backend.options.resolve import closest
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import KEYS, find_option

if TYPE_CHECKING:
    from lmi_backend.options.signature import Signature


def status_of(key: str, engine: str, signature: Signature | None) -> Status:
    """Return the status of a key under an engine whose arguments are these, if they are known."""
    option = find_option(key, engine)
    if option is not None:
        return option.status_under(engine)
    name = key.removeprefix(PREFIX)
    implementation = SPECS[engine].implementation
    runs_on = implementation.name
    if signature is not None and name in signature.arguments:
        return Status("passed", f"{runs_on} {name}")
    if other := _owner(key, name):
        detail = f"it is an option of {other}, and this model runs on {engine}"
        return Status("ignored", f"{detail} ({SPECS[other].how_to_choose} chooses {other})")
    if implementation.takes_any_option or _may_be_newer(key, signature):
        return Status("passed", f"{runs_on} {name}, which {runs_on} itself has to accept")
    return Status("refused", _unknown(key, runs_on, signature))


def _owner(key: str, name: str) -> str:
    """Return another engine that knows the key, or nothing."""
    if rows := KEYS.get(key):
        return rows[0].engines[0]
    for implementation in implementations():
        record = recorded_signature(implementation)
        if record and name in record.arguments:
            return implementation
    return ""


def _may_be_newer(key: str, signature: Signature | None) -> bool:
    """Tell whether a release that we have not seen may have it: it is like nothing we know.

    Only where no engine is installed that could be asked.
    """
    return (
        signature is not None and signature.is_recorded and not closest(key, _known_keys(signature))
    )


def _unknown(key: str, implementation: str, signature: Signature | None) -> str:
    hint = closest(key, _known_keys(signature))
    if signature is None:
        return f"is not an option of LMI for {implementation}{hint}"
    return (
        f"is neither an option of LMI nor an argument of {implementation} {signature.version}{hint}"
    )


def _known_keys(signature: Signature | None) -> list[str]:
    arguments = signature.arguments if signature else ()
    return [*KEYS, *(PREFIX + name for name in arguments)]
