"""What the options were when a model was converted, so that a later edit can be named."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.setting import Setting

OPTIONS: str = "options"
"""Parameter: the options at conversion, as JSON; secrets are masked."""
DIGEST: str = "options_digest"
"""Parameter: digest of the options at conversion, masked ones included."""


def options_record(options: LmiOptions) -> dict[str, str]:
    """Return the parameters of config.pbtxt that record the options."""
    settings = _settings(options)
    shown = {name: setting.shown for name, setting in settings.items()}
    whole = {name: setting.value for name, setting in settings.items()}
    return {
        OPTIONS: json.dumps(shown, sort_keys=True),
        DIGEST: digest(json.dumps(whole, sort_keys=True)),
    }


def option_changes(parameters: Mapping[str, str], options: LmiOptions) -> Iterator[str]:
    """Yield a sentence for each option that differs from the record of a conversion."""
    now = options_record(options)
    if DIGEST not in parameters or parameters[DIGEST] == now[DIGEST]:
        return
    then: dict[str, str] = json.loads(parameters.get(OPTIONS) or "{}")
    settings = _settings(options)
    for name in sorted({*then, *settings}):
        before = then.get(name)
        setting = settings.get(name)
        if setting is None:
            yield f"{name} was {before} at conversion and is not set now"
        elif before is None:
            yield f"{setting} was not set at conversion"
        elif before != setting.shown:
            yield f"{setting} was {before} at conversion"


def digest(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _settings(options: LmiOptions) -> dict[str, Setting]:
    passed = {f"option.{name}": setting for name, setting in options.passthrough.items()}
    return {**options.settings, **passed}
