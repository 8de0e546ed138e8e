"""What people ask of one vLLM at once, through the front end, while its processes are killed."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.support.chaos_report import Report, Row
from tests.support.serving import Served
from tests.support.waiting import wait_for

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
    "greedy": (16, GREEDY),
    "sampled": (8, GREEDY | {"temperature": 1.0}),
    "tool": (4, GREEDY | {"tools": [TOOL], "tool_choice": NAMED}),
    "structure": (4, GREEDY | {"response_format": SCHEMA}),
}
COUNT = sum(count for count, _ in BODIES.values())


class Chat:
    """A streamed chat: its text, or the arguments of its tool, and how it ended."""

    def __init__(self, served: Served, kind: str, body: dict[str, Any]) -> None:
        self.kind, self.text, self.ending = kind, "", ""
        self.num_events, self.num_tokens, self.pause = 0, 0, 0.0
        more = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
        self._served, self._body = served, json.dumps(body | more)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        connection = http.client.HTTPConnection(self._served.front_end, timeout=120)
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


def start(served: Served) -> list[Chat]:
    return [Chat(served, kind, body) for kind, (n, body) in BODIES.items() for _ in range(n)]


@pytest.fixture(scope="module")
def undisturbed(served: Served) -> dict[str, str]:
    """The answers that are the same each time, by their kind."""
    chats = [Chat(served, kind, body) for kind, (_, body) in BODIES.items() if kind != "sampled"]
    for chat in chats:
        chat.thread.join(120)
        assert chat.ending == "data: [DONE]"
    return {chat.kind: chat.text for chat in chats}


def _worker(served: Served) -> psutil.Process:
    return served.workers("tiny")[-1]


def _core(served: Served) -> psutil.Process:
    family = _worker(served).children(recursive=True)
    return next(each for each in family if "EngineCore" in " ".join(each.cmdline()))


def _server(served: Served) -> psutil.Process:
    return next(each for each in served.family() if "tritonserver" in each.name())


@pytest.mark.parametrize(
    ("fault", "find"),
    [
        ("a worker is killed", _worker),
        ("vLLM's engine core is killed", _core),
        ("tritonserver is killed", _server),
    ],
)
def test_their_clients_see_a_pause(
    served: Served,
    undisturbed: dict[str, str],
    report: Report,
    fault: str,
    find: Callable[[Served], psutil.Process],
) -> None:
    chats = start(served)
    wait_for(lambda: all(chat.num_events > 5 or chat.ending for chat in chats))
    running = sum(not chat.ending for chat in chats)
    find(served).kill()
    began = time.monotonic()
    for chat in chats:
        chat.thread.join(120)
    last = time.monotonic() - began
    assert Counter(chat.ending for chat in chats) == {"data: [DONE]": COUNT}
    assert running > COUNT // 2
    for chat in chats:
        if chat.kind != "sampled":
            assert chat.text == undisturbed[chat.kind]
        if chat.kind in ("greedy", "sampled"):
            assert chat.num_tokens == GREEDY["max_tokens"]
    assert len({chat.text for chat in chats if chat.kind == "sampled"}) > 1
    pause = max(chat.pause for chat in chats)
    report.rows.append(
        Row(
            f"{fault}, under chats through the front end: 16 greedy, 8 sampled, 8 with tools or "
            "structured output",
            Counter(whole=COUNT),
            last,
            last,
            f"nothing; the longest pause was {pause:.1f} s",
        )
    )
