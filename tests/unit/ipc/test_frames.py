import itertools
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi_backend.engine_config import ClientSettings, Context, EngineConfig, ModelInfo
from lmi_backend.errors import ConnectionLostError, WorkerError
from lmi_backend.generation import Continuation, Delta, GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.ipc.frames import CheckedEncoder, FrameDecoder, encode, encode_request
from lmi_backend.structures import StructureBounds

CLIENTS = ClientSettings(dialect="legacy", tgi_compat=True, normalize=False)
TO_WORKER: list[msg.ToWorker] = [
    msg.Challenge(b"nonce"),
    msg.Accepted(b"proof"),
    msg.Start("echo", EngineConfig(model="m", arguments={"a": 1}, passthrough={"b": "c"})),
    msg.Start("echo", EngineConfig(model="", clients=CLIENTS, structure_bounds=StructureBounds(1))),
    msg.Submit(7, (GenerateRequest("p é", Sampling(stop=("x",), extra={"k": [1]}), stream=False),)),
    msg.Submit(8, (GenerateRequest((1, 2), logprobs=0), GenerateRequest("q"))),
    msg.SubmitHttp(9, HttpRequest("/v1/models", b"\xff")),
    msg.Abort([1, 2]),
    msg.Stop(),
]
FROM_WORKER: list[msg.FromWorker] = [
    msg.Hello(msg.PROTOCOL, 1, 2, b"nonce", b"proof"),
    msg.Ready(Capabilities("echo", "1", 10)),
    msg.StartFailed("no", "option.x"),
    msg.Output(7, Delta("t", 1, "stop", "x", 3)),
    msg.Events([7, 8], [b"data: {}\n\n", b""], [b"\x05\0\0\x80", b"\x06\0\0\x80"]),
    msg.Deltas([7], [b"\x91\xa1a"], [b"\x05\0\0\x80"]),
    msg.Failure(7, "request", "is bad", "prompt"),
    msg.Heartbeat(EngineStats(1, 2, 0.5)),
]
TO_CLIENT: list[msg.ToClient] = [
    msg.Welcome(Context(CLIENTS, ["a"], is_custom=True), ModelInfo(name="m")),
    msg.Health(is_ready=True),
    msg.Rejoined(7, [b"block", b""]),
    msg.Rejoined(7, [b"block"], 3, Continuation(b"ids", 2, b"head")),
    msg.Ended(7, 3),
    msg.Found(),
    msg.Found("over", msg.Buffering("name", "owner", 60, is_lasting=True, key="key"), [b"block"]),
]
FROM_CLIENT: list[msg.FromClient] = [
    msg.Submit(7, (GenerateRequest("p"),), "tenant", msg.Buffering("name", "owner", 60)),
    msg.SubmitHttp(
        8,
        HttpRequest("/v1/models", b""),
        "",
        msg.Buffering("name", "owner", 0.5, num_events=3, block=b"block"),
    ),
    msg.Rejoin(7, "name", "owner"),
    msg.Left(7),
    msg.Left(7, returns=False),
    msg.Find("key", "name", "cancel"),
]


def decoder(kind: object = msg.FromWorker, limit: int = 1 << 20) -> FrameDecoder[object]:
    return FrameDecoder(kind, limit=limit)


def test_every_message_survives() -> None:
    assert decoder(msg.ToWorker).feed(encode(TO_WORKER)) == TO_WORKER
    assert decoder().feed(encode(FROM_WORKER)) == FROM_WORKER
    assert decoder(msg.ToClient).feed(encode(TO_CLIENT)) == TO_CLIENT
    assert decoder(msg.FromClient).feed(encode(FROM_CLIENT)) == FROM_CLIENT


_OUTPUTS = st.builds(
    msg.Output,
    st.integers(-(2**63), 2**64 - 1),
    st.builds(Delta, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**32)),
)


@given(st.lists(st.lists(_OUTPUTS), max_size=4), st.integers(1, 64))
def test_any_frames_survive_in_pieces_of_any_size(
    frames: list[list[msg.Output]], size: int
) -> None:
    data = b"".join(encode(frame) for frame in frames)
    reader = decoder()
    received = [
        message
        for start in range(0, len(data), size)
        for message in reader.feed(data[start : start + size])
    ]
    assert received == [message for frame in frames for message in frame]


@given(st.binary(min_size=1))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    try:
        assert decoder(limit=1 << 10).feed(data) == []
    except WorkerError as error:
        assert "a frame" in str(error)  # noqa: PT017


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(WorkerError, match="a frame of 2000 bytes; accepted: at most 1000"):
        decoder(limit=1000).feed(struct.pack("<I", 2000))
    frame = encode(FROM_WORKER)
    assert decoder(limit=len(frame) - 4).feed(frame) == FROM_WORKER
    with pytest.raises(WorkerError, match="accepted: at most"):
        decoder(limit=len(frame) - 5).feed(frame)


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x91\x91\xa5Bogus", b"\x81\x01\x02", encode([msg.Stop()])[4:]]
)
def test_what_was_not_agreed_is_refused(body: bytes) -> None:
    with pytest.raises(WorkerError, match="cannot be read"):
        decoder().feed(struct.pack("<I", len(body)) + body)


@pytest.mark.parametrize(
    "columns",
    [
        [[1, 2], [b"a"], [b"\x05\0\0\x80"]],
        [[1], [b"a", b"b"], [b"\x05\0\0\x80"]],
        [[1], [b"a"], []],
        [[1], [b"a"], [b""]],
        [[1, 2], [b"a", b"b"], [b"\x05\0\0\x80", b"\x05\0"]],
    ],
)
def test_events_that_are_none_are_refused_before_any_is_kept(columns: list[object]) -> None:
    """Else a stream would resume, elsewhere, after tokens that its client never got."""
    body = msgspec.msgpack.encode([["Events", *columns]])
    with pytest.raises(WorkerError, match="cannot be read"):
        decoder().feed(struct.pack("<I", len(body)) + body)


@pytest.mark.parametrize(
    ("begun", "words"), [(b"", "closed the connection$"), (b"\x05\x00", "2 bytes")]
)
def test_the_end_of_the_stream_is_an_error(begun: bytes, words: str) -> None:
    reader = decoder()
    if begun:
        reader.feed(begun)
    with pytest.raises(ConnectionLostError, match=words):
        reader.feed(b"")


BODY = bytes(range(256)) * 2048
LARGE: list[msg.Submit | msg.SubmitHttp] = [
    msg.SubmitHttp(1, HttpRequest("/v1/completions", BODY, {"a": "b"}), "tenant"),
    msg.Submit(2, (GenerateRequest("a", images=(BODY, b"", b"small")), GenerateRequest("b"))),
]


@pytest.mark.parametrize("message", LARGE)
@pytest.mark.parametrize("size", [1, 4096, 1 << 20])
def test_large_bytes_travel_apart_and_come_whole(message: msg.ToWorker, size: int) -> None:
    frame = encode_request(message)
    assert any(piece is BODY for piece in frame), "they are not copied"
    assert CheckedEncoder(msg.FromClient).encode_request(message) == frame
    data = b"".join(frame) + encode([msg.Stop()]) + b"".join(encode_request(msg.Abort([1])))
    reader, received = decoder(msg.ToWorker), list[object]()
    # The beginning byte by byte: it has all kinds of borders.
    cuts = [*range(min(size, 40)), *range(40, len(data), max(size, 512)), len(data)]
    for start, end in itertools.pairwise(cuts):
        received += reader.feed(data[start:end])
    assert received == [message, msg.Stop(), msg.Abort([1])]
    assert reader.rest == 0


def test_what_is_small_is_one_piece() -> None:
    for message in (*TO_WORKER, msg.Submit(1, (GenerateRequest("a" * 300_000),))):
        assert encode_request(message) == (encode([message]),)


@pytest.mark.parametrize("bare", [msg.Stop(), msg.Submit(1, (GenerateRequest("a"),))])
def test_bytes_that_no_message_has_a_place_for_are_refused(bare: msg.ToWorker) -> None:
    apart = b"".join(encode_request(LARGE[0])[:2])
    with pytest.raises(WorkerError, match="1 frames of bytes before a"):
        decoder(msg.ToWorker).feed(apart + encode([bare]))


def test_large_bytes_have_the_limit_of_a_frame() -> None:
    apart = b"".join(encode_request(LARGE[0])[:2])
    assert decoder(limit=len(BODY) + 1).feed(apart) == []
    with pytest.raises(WorkerError, match="accepted: at most"):
        decoder(limit=len(BODY)).feed(apart)


def test_a_body_that_is_cut_is_an_error() -> None:
    reader = decoder(msg.ToWorker)
    reader.feed(b"".join(encode_request(LARGE[0]))[:1000])
    assert reader.rest > 900
    with pytest.raises(ConnectionLostError, match="in the middle of a frame"):
        reader.feed(b"")
