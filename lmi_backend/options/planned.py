"""The release of an engine's library that a plan is made for."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.errors import ConfigurationError
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.queried import place_of_answer, query_library
from lmi_backend.options.signature import (
    Signature,
    installed_signature,
    installed_version,
    other_signature,
    recorded_signature,
    signature,
    source_of,
)
from lmi_backend.options.versions import Planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.options import LmiOptions


def signature_of(options: LmiOptions, python: str) -> Signature | None:
    """Return what the release takes that options are planned for.

    That is the supposed one, else the one that interpreter has, else the one of our record.
    """
    name = options.choice.spec.implementation.name
    if not options.supposed_release:
        return signature(name, python)
    return supposed_signature(name, options.supposed_release)


def supposed_signature(implementation: str, version: str) -> Signature | None:
    """Return what a release takes, as far as our record knows; of a newer one, what ours takes."""
    known = other_signature(implementation, version) or recorded_signature(implementation)
    return replace(known, version=version) if known else None


def planned_release(options: LmiOptions, python: str) -> Planned:
    """Return the release that options are planned for."""
    name = options.choice.spec.implementation.name
    if options.supposed_release:
        return Planned(options.supposed_release, is_installed=False)
    version = installed_version(name, python)
    if version or installed_signature(name, python):
        return Planned(version, is_installed=True)
    recorded = recorded_signature(name)
    return Planned(recorded.version if recorded else "", is_installed=False)


def query_if_unknown(options: LmiOptions, python: str, say: Callable[[str], None]) -> bool:
    """Query the engine for what it takes if no record knows its release; tell whether it answered.

    It is queried once: the answer is kept.
    """
    name = options.choice.spec.implementation.name
    return not options.supposed_release and _query_once(name, python, say)


@functools.cache
def _query_once(name: str, python: str, say: Callable[[str], None]) -> bool:
    source, version = source_of(name), installed_version(name, python)
    if not source or not version or installed_signature(name, python):
        return False
    title = implementations()[name].title
    try:
        place = place_of_answer(source, python)
        if place is None:
            return False
        say(f"{title} {version} of {python} is queried for its arguments, once: some 30 s")
        query_library(source.query, python, place)
    except (ConfigurationError, OSError) as error:
        say(f"{title} {version} of {python} does not say which arguments it takes: {error}")
        return False
    installed_signature.cache_clear()
    return True


def release_and_why(options: LmiOptions, python: str) -> str:
    """Return the release that options are planned for, and why it is this one; empty for none."""
    release = planned_release(options, python)
    title = implementations()[options.choice.spec.implementation.name].title
    if not release.version:
        return ""
    if options.supposed_release:
        reason = "as --engine-version says"
    elif release.is_installed:
        reason = f"which {python} has"
        known = signature(options.choice.spec.implementation.name, python)
        if known and known.is_recorded:
            reason = f"unknown here, so judged as {known.version}; {reason}"
    else:
        reason = f"the recorded release: {python} has none (--engine-version supposes another)"
    return f"{title} {release.version.partition('+')[0]}, {reason}"
