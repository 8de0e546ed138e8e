"""What past releases of an engine's library took, recorded as differences from the next one."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lmi_backend.options.releases import numbers
from lmi_backend.options.signature import RECORDS, Argument, recorded_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.options.signature import Signature


def past_signature(implementation: str, version: str) -> Signature | None:
    """Return what a release took; None of one that is as new as our record, or not recorded.

    A release counts as the last one of its minor number.
    """
    wanted = numbers(version)[:2]
    chain = _chain(implementation)
    if not wanted or wanted not in chain:
        return None
    return chain[wanted]


@functools.cache
def _chain(implementation: str) -> dict[tuple[int, ...], Signature]:
    """Return each recorded past release, by its minor number."""
    file = RECORDS / f"{implementation}_past.json"
    known = recorded_signature(implementation)
    if known is None or not file.is_file():
        return {}
    chain: dict[tuple[int, ...], Signature] = {}
    for version, changes in json.loads(file.read_text(encoding="utf-8")).items():
        known = _changed(known, version, changes)
        chain[numbers(version)[:2]] = known
    return chain


def _changed(known: Signature, version: str, changes: Mapping[str, Any]) -> Signature:
    """Return the release before one, by what differs."""
    return replace(
        known,
        version=version,
        arguments=_patched(known.arguments, changes.get("arguments", {}), _argument),
        server=_patched(known.server, changes.get("server", {}), _argument),
        words=_patched(known.words, changes.get("words", {}), tuple),
        objects=_patched(known.objects, changes.get("objects", {}), _keys),
        listener=tuple(changes.get("listener", known.listener)),
        opposites=_patched(known.opposites, changes.get("opposites", {}), str),
        # Which models it served is not recorded.
        ended_models=MappingProxyType({}),
        replaced_models=MappingProxyType({}),
    )


def _patched(
    known: Mapping[str, Any], changes: Mapping[str, Any], read: Callable[[Any], Any]
) -> Mapping[str, Any]:
    """Return a table with its changes: null where the past release has no such name."""
    given = {name: read(value) for name, value in changes.items() if value is not None}
    kept = {name: value for name, value in known.items() if name not in changes}
    return MappingProxyType(kept | given)


def _argument(texts: list[str]) -> Argument:
    return Argument(*texts)


def _keys(types: Mapping[str, str]) -> Mapping[str, Argument]:
    return MappingProxyType({name: Argument(kind, "") for name, kind in types.items()})
