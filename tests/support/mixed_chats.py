"""What people ask of one vLLM at once, through the front end, and how it ended at its clients."""

import http.client
import json
import threading
import time
from collections import Counter
from typing import Any

from tests.support.chaos_report import Report
from tests.support.serving import Served
from tests.support.waiting import HANG_SECONDS, wait_for

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


class _Chat:
    """A streamed chat: its text, or the arguments of its tool, and how it ended."""

    def __init__(self, served: Served, kind: str, body: dict[str, Any]) -> None:
        self.kind, self.text, self.ending = kind, "", ""
        self.num_events, self.num_tokens, self.pause = 0, 0, 0.0
        more = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
        self._served, self._body = served, json.dumps(body | more)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._served.front_end, timeout=HANG_SECONDS)
        heard_at = time.monotonic()
        try:
            connection.request("POST", "/v1/chat/completions", self._body)
            for line in connection.getresponse():
                # Between two events there may be comments, each 15 s.
                if line.startswith(b"data"):
                    now = time.monotonic()
                    self.pause, heard_at = max(self.pause, now - heard_at), now
                if line.startswith(b"data: {"):
                    self._take(json.loads(line.removeprefix(b"data: ")))
                elif line.startswith(b"data"):
                    self.ending = self.ending or line.decode().strip()
        except (OSError, http.client.HTTPException) as error:
            self.ending = repr(error)
        finally:
            connection.close()

    def _take(self, event: dict[str, Any]) -> None:
        if error := event.get("error"):
            self.ending = str(error)
        self.num_events += 1
        if usage := event.get("usage"):
            self.num_tokens = usage["completion_tokens"]
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            self.text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                self.text += call["function"].get("arguments") or ""


class MixedChats:
    """Greedy and sampled chats, and such with a tool or a structured output."""

    def __init__(self, served: Served, counts: dict[str, int] | None = None) -> None:
        counts = counts or {kind: count for kind, (count, _) in BODIES.items()}
        self.all: list[_Chat] = []
        self.num_asked = 0
        """With those of tries before."""
        for kind, (_, body) in BODIES.items():
            self.all += [_Chat(served, kind, body) for _ in range(counts.get(kind, 0))]
            wait_for(lambda: all(chat.num_events or chat.ending for chat in self.all))

    @classmethod
    def running(cls, served: Served, counts: dict[str, int] | None = None) -> "MixedChats":
        """Ask, and wait until each has begun; once more if all had ended when the last began."""
        asked = 0
        for _ in range(_TRIES):
            chats = cls(served, counts)
            asked += len(chats.all)
            chats.num_asked = asked
            wait_for(lambda: all(chat.num_events > 1 or chat.ending for chat in chats.all))  # noqa: B023
            if not all(chat.ending for chat in chats.all):
                return chats
        raise AssertionError(f"each had ended when the last began, in {_TRIES} tries")

    def wait(self) -> "MixedChats":
        """Wait until each has ended."""
        for chat in self.all:
            chat.thread.join(HANG_SECONDS)
        return self

    @property
    def pause(self) -> float:
        """The longest between two events of one of them, in seconds."""
        return max(chat.pause for chat in self.all)

    def answers(self) -> dict[str, set[str]]:
        """Return what was answered, by kind, after each has ended and is whole."""
        self.wait()
        assert Counter(chat.ending for chat in self.all) == {"data: [DONE]": len(self.all)}
        texts: dict[str, set[str]] = {}
        for chat in self.all:
            texts.setdefault(chat.kind, set()).add(chat.text)
            if chat.kind in ("greedy", "sampled"):
                assert chat.num_tokens == GREEDY["max_tokens"]
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
