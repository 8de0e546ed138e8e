"""Clients that harm: each exchange follows from its seed alone, so that a fault can be repeated."""

import contextlib
import gzip
import json
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from backports import zstd

from lmi_backend.printable import MIB
from tests.support.answers.streams import KINDS, body_of, request_of
from tests.support.harm.hostile import http_body, value

PATHS = (
    "/invocations", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses",
    "/v1/embeddings", "/tokenize", "/generate", "/generate_stream", "/", "/predictions/echo",
    "/models/echo/invoke", "/endpoints/e/invocations", "/endpoints/e/invocations-response-stream",
    "/v2/models/echo/generate", "/v2/models/echo/generate_stream", "/v2/models/echo_infer/infer",
    "/v2/models/echo/infer", "/adapters", "/models/echo/adapters", "/v1/load_lora_adapter",
    "/nothing", "/v2/repository/index", "/models",
)  # fmt: skip
GETS = (
    "/v1/models", "/ping", "/metrics", "/info", "/v2", "/v2/models/echo/config", "/api/state",
    "/v2/models/echo/stats", "/", "/nothing%0aforged", "/v1/models/a%00b", "/live",
)  # fmt: skip
_FIELDS = (
    "stop", "n", "logprobs", "seed", "stream_options", "adapters", "messages", "guided_regex",
    "response_format", "min_tokens", "best_of", "echo",
)  # fmt: skip
ENCODED: tuple[tuple[tuple[str, Callable[[bytes], bytes]], ...], ...] = (
    (),
    (("gzip", partial(gzip.compress, compresslevel=1)),),
    (("deflate", zlib.compress),),
    (("zstd", zstd.compress),),
    (("gzip", partial(gzip.compress, compresslevel=1)), ("zstd", zstd.compress)),
)
"""Encodings of a body, one in the other."""


@dataclass
class Wire:
    """One connection, as a client has it that cares for nothing."""

    port: int
    chance: random.Random

    def __post_init__(self) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(10)

    def open(self, *, receives: int = 0) -> None:
        """Connect; `receives` bounds what is taken of an answer that is not read."""
        if receives:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        self.socket.connect(("127.0.0.1", self.port))

    def send(self, data: bytes, parts: int = 1) -> None:
        """Send bytes in parts that end anywhere."""
        cuts = sorted(self.chance.randrange(len(data) + 1) for _ in range(parts - 1))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self.socket.sendall(data[start:end])
            if parts > 1:
                time.sleep(self.chance.random() * 0.02)

    def read(self, seconds: float, most: int = 1 << 20) -> None:
        until = time.monotonic() + seconds
        while most > 0 and (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            part = self.socket.recv(65536)
            if not part:
                return
            most -= len(part)

    def ask(self, data: bytes, seconds: float, *, parts: int = 1, most: int = 1 << 20) -> None:
        """Send what is all that is sent, and read for a while."""
        self.open()
        self.send(data, parts)
        self.read(seconds, most)

    def leave(self) -> None:
        how = self.chance.choice(("close", "reset", "half", "half and stay"))
        if how == "reset":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how.startswith("half"):
            self.socket.shutdown(socket.SHUT_WR)
            if how == "half and stay":
                self.read(0.3)
        self.socket.close()


def _stream(chance: random.Random, tokens: int = 200, prompt: str = " left") -> bytes:
    path, body = body_of(chance.choice(KINDS), "echo", tokens, prompt)
    return request_of(path, body)


def _get(chance: random.Random) -> bytes:
    return request_of(chance.choice(GETS), b"", method="GET")


def _chunked(path: str) -> bytes:
    head = request_of(path, b"", "transfer-encoding: chunked")
    return head.replace(b"content-length: 0\r\n", b"")


def pipelines(wire: Wire) -> None:
    """Send more behind a stream, and leave."""
    chance = wire.chance
    wire.open()
    behind = [
        _get(chance), _get(chance) * 200, _get(chance) * 50_000, _stream(chance),
        b"\0" * 9, b"POST / HTTP/1.1\r\nhost",
        request_of("/invocations", b"{" * 50_000), b"\r\n" * 99, request_of("/", b"x" * 300_000),
    ]  # fmt: skip
    data = _stream(chance)
    if chance.random() < 0.5:
        wire.send(data + chance.choice(behind))
        wire.read(0.2)
    else:
        wire.send(data)
        wire.read(0.2)
        wire.send(chance.choice(behind))
        wire.read(0.1)


def breaks_off(wire: Wire) -> None:
    data = _stream(wire.chance)
    wire.open()
    wire.send(data[: wire.chance.randrange(len(data))], parts=wire.chance.randrange(1, 4))


def uploads_and_breaks_off(wire: Wire) -> None:
    size = wire.chance.randrange(1, 50) * MIB
    head = request_of(wire.chance.choice(PATHS), b"").replace(b": 0\r\n", b": %d\r\n" % size)
    wire.open()
    wire.send(head)
    for _ in range(wire.chance.randrange(size // MIB)):
        wire.send(b"x" * MIB)


def sends_trailers(wire: Wire) -> None:
    """End a chunked body with trailers, or let its chunks have extensions."""
    chance = wire.chance
    path, body = body_of(chance.choice(KINDS), "echo", 20)
    head = _chunked(path)
    extension = b";a=" + b"e" * chance.choice((1, 1000, 500_000))
    trailer = chance.choice(
        (b"x-api-key: k\r\n", b"host: evil\r\n", b"x: " + b"y" * 99_999 + b"\r\n")
    )
    chunk = b"%x%b\r\n%b\r\n" % (len(body), chance.choice((b"", extension)), body)
    trailers = trailer * chance.choice((1, 3, 1 + (4 * MIB) // len(trailer)))
    wire.ask(head + chunk + b"0\r\n" + trailers + b"\r\n", 0.5)


def fields_of_odd_types(wire: Wire) -> None:
    """Send values of any type in any field, in each form."""
    chance = wire.chance
    wire.open()
    for _ in range(20):
        if chance.random() < 0.3:
            body = http_body(chance)
        else:
            # A valid body with one field that is not.
            valid = body_of(chance.choice(KINDS), "echo", 3)[1]
            named: dict[str, Any] = json.loads(valid)
            where = named.get("parameters", named) if chance.random() < 0.5 else named
            names = (*where, *_FIELDS)
            where[chance.choice(names)] = value(chance)
            body = json.dumps(named).encode()
        wire.send(request_of(chance.choice(PATHS), body))
        wire.read(0.02, most=5000)


def bodies_that_cost(wire: Wire) -> None:
    """Send bodies that take long to read, to decode or to check."""
    chance = wire.chance
    size = chance.choice((1, 4, 20, 60)) * MIB
    unit = chance.choice((b"[],", b'{"":0},', b"1,", b'"",', b"[[[", b'{"a":', b'"\\u0000",', b" "))
    body = b'{"inputs":"a","text_input":"a","prompt":"a","model":"echo","x":['
    body += unit * (size // len(unit))
    body += chance.choice((b"0]}", b"", b"0]}}"))
    more = []
    for name, pack in chance.choice(ENCODED):
        body = pack(body)
        more.append(f"content-encoding: {name}")
    wire.ask(request_of(chance.choice(PATHS), body, *more), 10, most=1)


def prompts_that_cost(wire: Wire) -> None:
    """Send a prompt that takes long to pass on, to cut into tokens, or to quote."""
    chance = wire.chance
    size = chance.choice((1, 4, 20, 60)) * MIB
    unit = chance.choice((" a", "a", " ", "\n", "é", "\U0001f600", '"', "\\", "\0", ",[{"))
    prompt = unit * (size // len(json.dumps(unit, ensure_ascii=False).encode()) + 1)
    path, valid = body_of(chance.choice(KINDS), "echo", 3)
    body = json.loads(valid)
    body[next(name for name in ("inputs", "prompt", "text_input") if name in body)] = prompt
    wire.ask(request_of(path, json.dumps(body, ensure_ascii=False).encode()), 10, most=1)


def patterns_that_cost(wire: Wire) -> None:
    """Ask for patterns, schemas and grammars that take long to check."""
    chance = wire.chance
    text = chance.choice(
        ("a{", "[", "(", "\\", '"', "(?", "a|", "[^", "{1,", "a*")
    ) + chance.choice(
        (" " * 3000, "[" * 9000, "(" * 9000, "{" * 9000, "{ " * 5000, ", " * 5000, "\\" * 9001)
    )
    named = chance.choice(
        (
            {"guided_regex": text}, {"guided_grammar": text}, {"guided_json": {"pattern": text}},
            {"guided_json": {"type": "string", "pattern": text}}, {"guided_choice": [text] * 9},
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}},
            {"structured_outputs": {"regex": text}}, {"structured_outputs": {"grammar": text}},
        )
    )  # fmt: skip
    path, valid = body_of(chance.choice(KINDS), "echo", 3)
    body = json.loads(valid)
    body.get("parameters", body).update(named)
    wire.ask(request_of(path, json.dumps(body).encode()), 1)


def headers_that_cost(wire: Wire) -> None:
    """Send headers that take long to read, or that name somebody else."""
    chance = wire.chance
    signed = "authorization: AWS4-HMAC-SHA256 " + "Credential=" * chance.choice((1, 5000))
    more = chance.choice(
        (
            (signed,), ("origin: http://[",), ("host: [",), ("origin: null",), ("x: y",) * 255,
            ("x-request-id: " + "a b=c " * 20,), ("traceparent: " + "-" * 5000,),
            ("x-amzn-sagemaker-target-model: " + "/" * 5000,), ("accept: " + "," * 60_000,),
            ("content-type: " + ";" * 60_000,), ("content-encoding: gzip",),
            ("expect: 100-continue",),
            ("connection: upgrade", "upgrade: h2c"), ("inference-header-content-length: 5",),
            ("x-amzn-sagemaker-custom-attributes: " + "é" * 999,), ("cookie: " + "=;" * 9000,),
        )
    )  # fmt: skip
    path, body = body_of(chance.choice(KINDS), "echo", 3)
    wire.ask(request_of(path, body, *more) + (_get(chance) if chance.random() < 0.5 else b""), 0.3)


def noise(wire: Wire) -> None:
    """Send a request with some bytes changed, or no request at all."""
    chance = wire.chance
    data = bytearray(_stream(chance, tokens=5))
    for _ in range(chance.choice((1, 3, 30))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    wire.ask(bytes(data) if chance.random() < 0.8 else chance.randbytes(9000), 0.2, parts=3)


def reads_nothing(wire: Wire) -> None:
    wire.open(receives=4096)
    wire.send(_stream(wire.chance, tokens=400, prompt=" " + "x" * wire.chance.choice((9, 20_000))))
    time.sleep(1)


def manages(wire: Wire) -> None:
    """Change adapters, with names and folders that are none."""
    chance = wire.chance
    name = chance.choice(("a", "\0", "\ud800", "../x", "", "x" * 9000, 5, None, ["a"]))
    src = chance.choice(("x\0y", "\ud800", "/etc", "..", "", 7, None, "s3://a/b", "x" * 9000))
    body: dict[str, Any] = {"name": name, "src": src, "lora_name": name, "lora_path": src}
    kind = chance.choice(("REGISTER", "UPDATE", "UNREGISTER", "LIST", "PIN", ""))
    path = chance.choice(("/invocations", "/adapters", "/models/echo/adapters", "/predictions/echo",
                          "/v1/load_lora_adapter", "/v2/models/echo/generate"))  # fmt: skip
    body["requestType"] = f"{kind}_ADAPTER"
    wire.ask(request_of(path, json.dumps(body).encode()), 0.3)


def sends_tiny_chunks(wire: Wire) -> None:
    """Send a body in chunks of a byte, whose sizes have zeros before them."""
    chance = wire.chance
    path, body = body_of(chance.choice(KINDS), "echo", 3)
    head = _chunked(path)
    zeros = b"0" * chance.choice((0, 0, 5, 300))
    chunks = b"".join(b"%b1\r\n%c\r\n" % (zeros, each) for each in body)
    blanks = b"%b1\r\n \r\n" % zeros * chance.choice((1, 100_000, 700_000 // (1 + len(zeros))))
    wire.ask(head + blanks + chunks + chance.choice((b"0\r\n\r\n", b"", b"-1\r\n")), 0.5)


def never_sends_the_rest(wire: Wire) -> None:
    """Open many connections whose bodies, or heads, are always about to come."""
    head = request_of("/v1/completions", b"", "expect: 100-continue")
    whole = head.replace(b": 0\r\n", b": 50000\r\n")
    wire.open()
    with contextlib.ExitStack() as others:
        for _ in range(100):
            other = Wire(wire.port, wire.chance)
            others.callback(other.socket.close)
            other.open()
            other.send(whole[: wire.chance.choice((len(whole), wire.chance.randrange(len(whole))))])
        wire.read(1)


def uploads_after_a_refusal(wire: Wire) -> None:
    """Send more of a body that is too large, or has the wrong path, after it has been refused."""
    chance = wire.chance
    path = chance.choice(("/v1/completions", "/nothing", "/v2/models/none/infer"))
    head = request_of(path, b"").replace(b": 0\r\n", b": 9000000000\r\n")
    wire.open()
    wire.send(head)
    for _ in range(chance.randrange(200)):
        wire.send(b"x" * MIB)
    wire.read(0.2)


def names_what_is_not(wire: Wire) -> None:
    """Name models, adapters, endpoints and responses in paths by what is no name, and no text."""
    chance = wire.chance
    wire.open()
    for _ in range(20):
        name = chance.choice(("%00", "%ff", "%0d%0ax:y", "%ed%a0%80", "%2e%2e", "%", "x" * 5000))
        path = chance.choice(
            ("/v1/models/{}", "/v1/responses/{}", "/v1/responses/{}/cancel", "/predictions/{}",
             "/models/{}/invoke", "/models/{}/adapters", "/endpoints/{}/invocations",
             "/v2/models/{}/generate", "/v2/models/{}/config", "/adapters/{}", "/{}")
        )  # fmt: skip
        method = chance.choice(("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PROPFIND"))
        wire.send(request_of(path.format(name), b"{}", method=method))
        wire.read(0.02, most=5000)


EXCHANGES: tuple[Callable[[Wire], None], ...] = (
    pipelines, breaks_off, uploads_and_breaks_off, sends_trailers, fields_of_odd_types,
    bodies_that_cost, prompts_that_cost, patterns_that_cost, headers_that_cost, noise,
    reads_nothing, manages, sends_tiny_chunks, never_sends_the_rest,
    uploads_after_a_refusal, names_what_is_not,
)  # fmt: skip


def exchange(seed: int) -> Callable[[Wire], None]:
    return EXCHANGES[seed % len(EXCHANGES)]


def harm(port: int, seed: int) -> None:
    """Do the exchange of a seed. What comes of it is the server's to decide."""
    wire = Wire(port, random.Random(seed))
    with contextlib.suppress(OSError):
        exchange(seed)(wire)
        wire.leave()
    wire.socket.close()
