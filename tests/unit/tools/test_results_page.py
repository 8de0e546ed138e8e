"""What README.md and benchmarks/README.md have of the newest results."""

import statistics
from collections.abc import Callable
from typing import Any

import pytest
from results_page import beside, samples

OURS, THEIRS = "lmi-backend, chat, each token", "vLLM's server"
RUST = "vLLM's Rust front end"
EIGHT = ("lmi-backend, chat, 8 tokens", "vLLM's server, 8 tokens")
MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "CPU": beside,
    "CPU with the engine": lambda sample: sum(sample["cpu_us_per_token"].values()),
    "first event": lambda sample: sample["first_ms"]["p50"],
    "gap": lambda sample: sample["gap_ms"]["p99"],
    "requests": lambda sample: sample["requests_per_second"],
}
CLAIMS: list[tuple[str, str, int, str, str, float, float]] = [
    ("CPU", "chats", 256, OURS, THEIRS, 0, 1),
    ("CPU", "chats", 256, *EIGHT, 0.4, 0.6),
    *(("gap", "chats", n, OURS, other, 0, 1) for n in (1, 64, 256) for other in (THEIRS, RUST)),
    *(("first event", "chats", n, OURS, THEIRS, 0, 1) for n in (1, 64, 256)),
    ("CPU", "chats", 256, "lmi-backend, LMI, each token", OURS, 1.2, 1.45),
    ("CPU", "chats", 256, RUST, OURS, 0, 1),
    ("CPU", "chats", 256, f"{RUST}, 8 tokens", EIGHT[0], 0, 1),
    ("CPU", "embeddings", 64, "lmi-backend, embeddings", f"{THEIRS}, embeddings", 1.3, 1.5),
    *(
        ("CPU with the engine", "chats", n, OURS, other, 0, most)
        for n, most in ((1, 0.3), (64, 0.4), (256, 0.6))
        for other in (THEIRS, RUST)
    ),
    ("CPU", "dynamo", 256, OURS, "Dynamo", 0, 0.5),
    ("CPU", "alone", 1, OURS, THEIRS, 0.9, 1.45),
    ("requests", "one-token", 64, OURS, THEIRS, 1.8, 2.6),
    ("requests", "one-token", 64, OURS, RUST, 0.7, 1),
    *(
        ("CPU", "tools", n, "lmi-backend, chat with tools, each token",
         f"{THEIRS}, chat with tools", 0.4, 0.6)
        for n in (64, 256)
    ),
]  # fmt: skip
"""What the pages say of medians: one target's is between these shares of another's."""


@pytest.mark.parametrize(("what", "kind", "at_once", "one", "other", "least", "most"), CLAIMS)
def test_what_the_pages_say_is_measured(  # noqa: PLR0917
    what: str, kind: str, at_once: int, one: str, other: str, least: float, most: float
) -> None:
    ours, theirs = (
        statistics.median(map(MEASURES[what], samples(kind, target, at_once)))
        for target in (one, other)
    )
    assert least < ours / theirs < most
