"""Which of the places where the engine reaches into vLLM are off.

The engine's implementation says what each one is (`PATHS`); a test compares the names.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, ITEMS, Kind
from lmi_backend.options.option import Option

FASTER: Final = (
    "own_streams",
    "fewer_counts",
    "waits",
    "single_process",
    "adapter_table",
)
"""What makes the same answers cheaper."""
SERVED: Final = (
    "resumption",
    "forced_tokens",
    "load",
    "defaults",
    "lora_rows",
    "seeded_steps",
    "media",
    "short_errors",
    "asked_name",
    "whole_tool_calls",
    "prefill",
)
"""What changes what is answered, or whether anything is."""


def _read(text: str) -> str:
    """Return the names of those that are off; an empty text if none is."""
    try:
        return "" if BOOL.parse(text) else ",".join(FASTER)
    except ValueError:
        names = [str(name).strip().lower() for name in ITEMS.parse(text)]
    for name in names:
        if name not in FASTER + SERVED:
            raise ValueError(f"has {name!r}, which is no fast path")
    return ",".join(dict.fromkeys(names))


FAST_PATHS: Final = Option(
    name="option.vllm_fast_paths",
    kind=Kind(
        "fast paths",
        _read,
        "true, false, or names of those that are off, with commas between. "
        f"Names that false turns off: {', '.join(FASTER)}; others: {', '.join(SERVED)}",
    ),
    default="",
    scope="vllm",
    plan_field="fast_paths",
    help="Fast paths inside vLLM: false turns off all that make the same answers cheaper. Names"
    " turn off some, and what is served beyond vLLM's public ways too (docs/engines.md).",
)
