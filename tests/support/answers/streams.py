"""Many streams at once, in each dialect, and how each of them ended at its client."""

import ctypes
import http.client
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served

KINDS = ("OpenAI", "LMI", "TGI")
# From asm-generic/socket.h; Python does not have it.
_SO_ATTACH_FILTER = 26
# What the echo engine says again: an answer has as many words as tokens.
PROMPT = " word"
_COMMENTS = (b":", b"id:", b"event:", b"retry:")


def body_of(kind: str, model: str, tokens: int, prompt: str = PROMPT) -> tuple[str, bytes]:
    if kind == "OpenAI":
        body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": tokens}
        return "/v1/completions", json.dumps(body | {"stream": True}).encode()
    body = {"inputs": prompt, "parameters": {"max_new_tokens": tokens}}
    if kind == "TGI":
        return "/generate_stream", json.dumps(body).encode()
    return "/invocations", json.dumps(body | {"stream": True}).encode()


def request_of(path: str, data: bytes, *more: str, method: str = "POST") -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(data)}", *more)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def ask_and_wait(served: Served, kind: str, tokens: int) -> socket.socket:
    """Ask for a stream; return the connection once the answer has begun."""
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=HANG_SECONDS)
    connection.sendall(request_of(*body_of(kind, "echo", tokens)))
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    return connection


def vanish(connection: socket.socket) -> None:
    """Be gone as a machine is that lost its power: no packet reaches this end, none is answered."""
    # A filter of classic BPF with one instruction: return 0, which drops what comes.
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    attached = struct.pack("@HP", 1, ctypes.addressof(program))
    try:
        connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
    except PermissionError:
        pytest.skip("this kernel lets root alone drop packets")


@dataclass
class Stream:
    """One request: what came, and how it ended."""

    kind: str = ""
    chunks: int = 0
    text: str = ""
    """With the arguments of its tools."""
    usage: int = 0
    """Tokens of its answer, where its last event has them."""
    endings: list[str] = field(default_factory=list)
    """`whole`, `error` or `cut`: the connection ended without a word. One, if all is well."""
    error: str = ""
    ended_at: float = 0.0
    pause: float = 0.0
    """The longest between two chunks, in seconds."""
    _heard_at: float = 0.0

    @property
    def tokens(self) -> int:
        """Of the echo engine: words."""
        return len(self.text.split())

    def hear(self) -> None:
        now = time.monotonic()
        self.pause = max(self.pause, now - (self._heard_at or now))
        self.chunks, self._heard_at = self.chunks + 1, now

    def take(self, line: bytes) -> None:
        data = line.removeprefix(b"data:").strip()
        if not data or line.startswith(_COMMENTS):
            return
        self.hear()
        if data == b"[DONE]":
            if "error" not in self.endings:
                self.end("whole")
            return
        event = json.loads(data)
        if error := event.get("error"):
            self.end("error", str(error.get("message", error) if type(error) is dict else error))
            return
        self.text += text_of(event)
        if usage := event.get("usage"):
            self.usage = usage["completion_tokens"]
        if event.get("generated_text") is not None:
            self.end("whole")

    def end(self, how: str, error: str = "") -> None:
        self.endings.append(how)
        self.error = self.error or error
        self.ended_at = time.monotonic()

    def ask(
        self,
        address: str,
        path: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Ask over HTTP, and read until the connection ends."""
        connection = http.client.HTTPConnection(address, timeout=HANG_SECONDS)
        why = "the connection closed"
        try:
            connection.request("POST", path, data, dict(headers or {}))
            for line in connection.getresponse():
                self.take(line)
        except (OSError, http.client.HTTPException) as error:
            why = repr(error)
        finally:
            connection.close()
        if not self.endings:
            self.end("cut", why)


def text_of(event: dict[str, Any]) -> str:
    if "choices" not in event:
        return str(event["token"]["text"] if "token" in event else event.get("text_output", ""))
    text = ""
    for choice in event["choices"]:
        delta = choice.get("delta", {})
        text += choice.get("text") or delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            text += call["function"].get("arguments") or ""
    return text


class Streams:
    """Requests that run at once."""

    def __init__(self) -> None:
        self.all: list[Stream] = []
        self._threads: list[threading.Thread] = []

    def ask(self, kind: str, address: str, path: str, data: bytes) -> Stream:
        """Ask for one more, on a connection of its own."""
        self.all.append(stream := Stream(kind))
        self._threads.append(threading.Thread(target=stream.ask, args=(address, path, data)))
        self._threads[-1].start()
        return stream

    def generate(self, served: Served, model: str, prompt: str, tokens: int) -> Stream:
        """Ask Triton's port for one more, of so many tokens."""
        parameters = {"max_new_tokens": tokens, "ignore_eos": True}
        body = {"inputs": prompt, "stream": True, "parameters": parameters}
        path = f"/v2/models/{model}/generate_stream"
        return self.ask("Triton", served.http, path, json.dumps(body).encode())

    def wait(self, seconds: float = HANG_SECONDS) -> "Streams":
        wait_for(lambda: all(each.endings for each in self.all), seconds)
        for thread in self._threads:
            thread.join(HANG_SECONDS)
        return self

    def wait_for_more(self) -> None:
        """Wait until each has had another chunk, or has ended."""
        before = [(each, each.chunks) for each in self.all]
        wait_for(lambda: all(each.endings or each.chunks > count for each, count in before))

    @property
    def outcomes(self) -> Counter[str]:
        """How many ended how; one that ended twice counts as `twice`."""
        return Counter(s.endings[0] if len(s.endings) == 1 else "twice" for s in self.all)

    @property
    def pause(self) -> float:
        """The longest time that one of them waited for its next chunk."""
        return max(each.pause for each in self.all)

    @property
    def errors(self) -> set[str]:
        return {each.error for each in self.all if each.error}

    @property
    def last(self) -> float:
        """When the last one ended, by `time.monotonic`."""
        return max(each.ended_at for each in self.all)


class FrontStreams(Streams):
    """Requests of some dialects to the front end, all of which have begun."""

    def __init__(
        self, served: Served, model: str, count: int, tokens: int, kinds: Sequence[str] = KINDS
    ) -> None:
        super().__init__()
        self._tokens = tokens
        for number in range(count):
            kind = kinds[number % len(kinds)]
            self.ask(kind, served.front_end, *body_of(kind, model, tokens))
        wait_for(lambda: all(each.text or each.endings for each in self.all))

    def assert_whole(self) -> None:
        """Check that each answer came to its end, and that nothing of it is missing."""
        self.wait()
        assert self.outcomes == {"whole": len(self.all)}, self.errors
        assert {each.tokens for each in self.all} == {self._tokens}


class TritonStreams(Streams):
    """Requests on Triton's ports: half over HTTP, half over one gRPC stream; some have begun."""

    def __init__(self, served: Served, model: str, count: int, tokens: int) -> None:
        super().__init__()
        prompt = "Count to one hundred:"
        for _ in range(count - count // 2):
            self.generate(served, model, prompt, tokens)
        self._grpc = tritonclient.grpc.InferenceServerClient(served.grpc)
        self._streams = [Stream("gRPC") for _ in range(count // 2)]
        self.all += self._streams
        text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([prompt.encode()], dtype=np.object_))
        flag = tritonclient.grpc.InferInput("stream", [1], "BOOL")
        flag.set_data_from_numpy(np.array([True]))
        self._grpc.start_stream(self._take)
        for number in range(len(self._streams)):
            self._grpc.async_stream_infer(
                model,
                [text, flag],
                request_id=str(number),
                parameters={"max_tokens": tokens, "ignore_eos": True},
            )
        wait_for(lambda: sum(each.chunks > 0 for each in self.all) >= count // 4)

    def wait(self, seconds: float = HANG_SECONDS) -> "TritonStreams":
        super().wait(seconds)
        self._grpc.stop_stream(cancel_requests=True)
        self._grpc.close()
        return self

    def _take(self, result: Any, error: Any) -> None:
        if error is None:
            response = result.get_response()
            stream = self._streams[int(response.id)]
            stream.hear()
            if response.parameters["triton_final_response"].bool_param:
                stream.end("whole")
            return
        open_ones = [stream for stream in self._streams if not stream.endings]
        if error.status() is not None:
            # The connection's, and so of all that are open.
            for stream in open_ones:
                stream.end("cut", error.message())
        else:
            # One request's; the client does not say which.
            (open_ones or self._streams)[0].end("error", error.message())
