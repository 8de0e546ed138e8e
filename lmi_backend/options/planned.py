"""The release of an engine's library that a plan is made for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.past_releases import past_signature
from lmi_backend.options.signature import (
    Signature,
    installed_signature,
    installed_version,
    recorded_signature,
    signature,
)
from lmi_backend.options.versions import Planned, is_later

if TYPE_CHECKING:
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
    known = past_signature(implementation, version) or recorded_signature(implementation)
    return replace(known, version=version) if known else None


def is_past(known: Signature) -> bool:
    """Tell whether what a release takes is known of an older one than our record's."""
    recorded = recorded_signature(known.engine)
    return recorded is not None and is_later(recorded.version, known.version) is True


def planned_release(options: LmiOptions, python: str) -> Planned:
    """Return the release that options are planned for."""
    name = options.choice.spec.implementation.name
    if options.supposed_release:
        return Planned(options.supposed_release, is_installed=False)
    version = installed_version(name, python)
    read = installed_signature(name, python)
    if version or read:
        return Planned(version, True, frozenset(read.arguments if read else ()))
    recorded = recorded_signature(name)
    return Planned(recorded.version if recorded else "", is_installed=False)


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
    else:
        reason = f"the recorded release: {python} has none (--engine-version supposes another)"
    return f"{title} {release.version.partition('+')[0]}, {reason}"
