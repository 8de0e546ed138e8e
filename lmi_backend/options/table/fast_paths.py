"""Which of the engine's fast paths are off; each has a public way that answers the same requests.

The engine's implementation says what each one is (`PATHS`); a test compares the names.
"""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, ITEMS, Kind
from lmi_backend.options.option import Option

NAMES: Final = (
    "output_hook",
    "new_tokens",
    "packed_logprobs",
    "token_texts",
    "plain_stream",
    "parsed_stream",
    "known_chats",
    "short_chats",
    "known_embeddings",
    "direct_calls",
    "resumption",
    "forced_tokens",
    "fewer_counts",
    "load",
    "defaults",
    "waits",
    "lora_rows",
    "seeded_steps",
    "single_process",
    "media",
    "short_errors",
    "asked_name",
    "whole_tool_calls",
    "prefill",
    "adapter_table",
)
ALL_OFF: Final = "false"


def _read(text: str) -> str:
    """Return `false`, or the names of those that are off; an empty text if none is."""
    try:
        return "" if BOOL.parse(text) else ALL_OFF
    except ValueError:
        names = [str(name).strip().lower() for name in ITEMS.parse(text)]
    for name in names:
        if name not in NAMES:
            raise ValueError(f"has {name!r}, which is no fast path")
    return ",".join(dict.fromkeys(names))


FAST_PATHS: Final = Option(
    name="option.vllm_fast_paths",
    kind=Kind(
        "fast paths",
        _read,
        "true, false, or names of those that are off, with commas between. "
        f"Names: {', '.join(NAMES)}",
    ),
    default="",
    scope="vllm",
    plan_field="fast_paths",
    help="Fast paths inside vLLM: false turns them all off, names turn off some. The same requests"
    " are answered by vLLM's public ways, which cost more (docs/engines.md).",
)
