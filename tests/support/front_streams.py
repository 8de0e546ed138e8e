"""Streams through the front end, in every dialect, and how each of them ended at its client."""

import ctypes
import http.client
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.serving import Served
from tests.support.waiting import HANG_SECONDS, wait_for

KINDS = ("OpenAI", "LMI", "TGI")
# From asm-generic/socket.h; Python does not have it.
_SO_ATTACH_FILTER = 26
# What the echo engine says again: an answer has as many words as tokens.
PROMPT = " word"


def body_of(kind: str, model: str, tokens: int, prompt: str = PROMPT) -> tuple[str, bytes]:
    """Return the path and the body of a streamed request."""
    if kind == "OpenAI":
        body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": tokens}
        return "/v1/completions", json.dumps(body | {"stream": True}).encode()
    body = {"inputs": prompt, "parameters": {"max_new_tokens": tokens}}
    if kind == "TGI":
        return "/generate_stream", json.dumps(body).encode()
    return "/invocations", json.dumps(body | {"stream": True}).encode()


def request_of(path: str, data: bytes, *more: str) -> bytes:
    """Return a whole request."""
    lines = (f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {len(data)}", *more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def ask_and_wait(served: Served, kind: str, tokens: int, prompt: str = PROMPT) -> socket.socket:
    """Ask for a stream; return the connection once the answer has begun."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=HANG_SECONDS)
    connection.sendall(request_of(*body_of(kind, "echo", tokens, prompt)))
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    return connection


def vanish(connection: socket.socket) -> None:
    """Be gone as a machine is that lost its power: no packet reaches this end, none is answered."""
    # A filter of classic BPF with one instruction: return 0, which drops what comes.
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    attached = struct.pack("@HP", 1, ctypes.addressof(program))
    connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)


@dataclass
class FrontStream:
    """One request: what came, and how it ended: `whole`, `error` or `cut`, once."""

    kind: str
    tokens: int = 0
    endings: list[str] = field(default_factory=list)
    error: str = ""
    ended_at: float = 0.0
    pause: float = 0.0
    """The longest between two lines, in seconds."""
    _heard_at: float = 0.0

    def take(self, line: bytes) -> None:
        """Read a line of the answer."""
        now = time.monotonic()
        self.pause = max(self.pause, now - (self._heard_at or now))
        self._heard_at = now
        text = line.removeprefix(b"data:").strip()
        if not text or self.endings:
            return
        if text == b"[DONE]":
            self._end("whole")
            return
        event = json.loads(text)
        if error := event.get("error"):
            self.error = str(error.get("message", error) if isinstance(error, dict) else error)
            self._end("error")
            return
        self.tokens += len(text_of(event).split())
        if event.get("generated_text") is not None:
            self._end("whole")

    def close(self, why: str) -> None:
        """Note that the connection has ended."""
        if not self.endings:
            self.error = why
            self._end("cut")

    def _end(self, how: str) -> None:
        self.endings.append(how)
        self.ended_at = time.monotonic()


def text_of(event: dict[str, Any]) -> str:
    """Return the text that an event brings."""
    if "choices" in event:
        return str(event["choices"][0]["text"])
    return str(event["token"]["text"])


class FrontStreams:
    """Requests of all dialects, each on a connection of its own."""

    def __init__(
        self, served: Served, model: str, count: int, tokens: int, kinds: Sequence[str] = KINDS
    ) -> None:
        self._served, self._model, self._tokens = served, model, tokens
        self.all = [FrontStream(kinds[number % len(kinds)]) for number in range(count)]
        self._threads = [threading.Thread(target=self._ask, args=(each,)) for each in self.all]
        for thread in self._threads:
            thread.start()
        wait_for(lambda: all(each.tokens or each.endings for each in self.all))

    def wait(self, seconds: float = 90) -> "FrontStreams":
        """Wait until each has ended."""
        wait_for(lambda: all(each.endings for each in self.all), seconds)
        for thread in self._threads:
            thread.join(HANG_SECONDS)
        return self

    @property
    def outcomes(self) -> Counter[str]:
        """How many ended how."""
        return Counter(each.endings[0] for each in self.all)

    @property
    def pause(self) -> float:
        """The longest pause of any, in seconds."""
        return max(each.pause for each in self.all)

    @property
    def last(self) -> float:
        """When the last one ended, by `time.monotonic`."""
        return max(each.ended_at for each in self.all)

    def assert_whole(self) -> None:
        """Check that each answer came to its end, and that nothing of it is missing."""
        self.wait()
        assert self.outcomes == {"whole": len(self.all)}, self.errors
        assert {each.tokens for each in self.all} == {self._tokens}

    @property
    def errors(self) -> set[tuple[str, str]]:
        """Kinds, and what they were told."""
        return {(each.kind, each.error) for each in self.all}

    def _ask(self, stream: FrontStream) -> None:
        connection = http.client.HTTPConnection(self._served.front_end, timeout=HANG_SECONDS)
        path, data = body_of(stream.kind, self._model, self._tokens)
        why = ""
        try:
            connection.request("POST", path, data)
            response = connection.getresponse()
            for line in response:
                stream.take(line)
        except (OSError, http.client.HTTPException) as error:
            why = repr(error)
        finally:
            connection.close()
        stream.close(why)
