"""What people ask of one vLLM at once, through the front end, and how it ended at its clients."""

import json
from collections import Counter
from typing import Any

from tests.support.answers.streams import Streams
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

STORY = {"messages": [{"role": "user", "content": "Tell a story:"}]}
LINES = {
    "type": "object",
    "properties": {"lines": {"type": "array", "items": {"type": "integer"}, "minItems": 60}},
    "required": ["lines"],
}
TOOL = {"type": "function", "function": {"name": "note", "parameters": LINES}}
NAMED = {"type": "function", "function": {"name": "note"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "lines", "schema": LINES}}
GREEDY = STORY | {"max_tokens": 300, "temperature": 0, "ignore_eos": True}
BODIES: dict[str, tuple[int, dict[str, Any]]] = {
    # Those with a grammar begin last, since an engine makes it first, and so are asked first.
    "tool": (4, GREEDY | {"tools": [TOOL], "tool_choice": NAMED}),
    "structure": (4, GREEDY | {"response_format": SCHEMA}),
    "greedy": (16, GREEDY),
    "sampled": (8, GREEDY | {"temperature": 1.0}),
}
_TRIES = 3


class MixedChats(Streams):
    """Greedy and sampled chats, and such with a tool or a structured output."""

    def __init__(self, served: Served, counts: dict[str, int] | None = None) -> None:
        super().__init__()
        counts = counts or {kind: count for kind, (count, _) in BODIES.items()}
        self.num_asked = 0
        """With those of tries before."""
        more = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
        for kind, (_, body) in BODIES.items():
            for _ in range(counts.get(kind, 0)):
                data = json.dumps(body | more).encode()
                self.ask(kind, served.front_end, "/v1/chat/completions", data)
            wait_for(lambda: all(chat.chunks or chat.endings for chat in self.all))

    @classmethod
    def running(cls, served: Served, counts: dict[str, int] | None = None) -> "MixedChats":
        """Ask, and wait until each has begun; once more if all had ended when the last began."""
        asked = 0
        for _ in range(_TRIES):
            chats = cls(served, counts)
            asked += len(chats.all)
            chats.num_asked = asked
            wait_for(lambda: all(chat.chunks > 1 or chat.endings for chat in chats.all))  # noqa: B023
            if not all(chat.endings for chat in chats.all):
                return chats
        raise AssertionError(f"each had ended when the last began, in {_TRIES} tries")

    def answers(self) -> dict[str, set[str]]:
        """Return what was answered, by kind, after each has ended and is whole."""
        self.wait()
        assert self.outcomes == {"whole": len(self.all)}, self.errors
        texts: dict[str, set[str]] = {}
        for chat in self.all:
            texts.setdefault(chat.kind, set()).add(chat.text)
            if chat.kind in ("greedy", "sampled"):
                assert chat.usage == GREEDY["max_tokens"]
        return texts

    def assert_undisturbed(self, undisturbed: dict[str, set[str]]) -> None:
        """Check that each came to its end, and says what it says when nothing happens."""
        texts = self.answers()
        assert len(texts.pop("sampled")) > 1
        assert texts == undisturbed


def note_chats(
    report: Report, fault: str, chats: MixedChats, undisturbed: dict[str, set[str]]
) -> None:
    """Check chats that a fault was done to, and note what was seen."""
    chats.assert_undisturbed(undisturbed)
    kinds = Counter(chat.kind for chat in chats.all)
    mix = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    report.note_front(
        f"{fault}, under chats of vLLM: {mix}",
        f"all finish, after a pause of {chats.pause:.1f} s; those that are not sampled have the "
        "same bytes as without the fault",
    )
