"""Triton's form of an answer; tests/integration compares it with that of Triton's own port."""

import math

import pytest

from lmi_backend.clients.lmi.body_reply import BodyReply
from lmi_backend.clients.reply import Reply
from lmi_backend.clients.triton.form import TritonForm, number, quoted
from lmi_backend.clients.trtllm.reading import TrtllmReply
from lmi_backend.clients.vllm.reading import VllmReply
from lmi_backend.errors import EngineDeadError, EngineError, HttpError
from lmi_backend.generation import Delta, HttpChunk

NAMED = {"model_name": "m", "model_version": "1"}
HEAD = '{"model_name":"m","model_version":"1",'


def form_of(reply: Reply, answers: int = 1, *, is_stream: bool = True) -> TritonForm:
    return TritonForm(reply, answers, NAMED, is_stream=is_stream)


def vllm(*, stream: bool = True) -> VllmReply:
    return VllmReply(1, stream, prefix="", outputs=frozenset())


# Written by RapidJSON's Writer::Double for the float.
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (-0.5, "-0.5"),
        (-1234.0, "-1234.0"),
        (0.1, "0.10000000149011612"),
        (-1.1920928955078125e-07, "-1.1920928955078125e-7"),
        (2.0**-20, "9.5367431640625e-7"),
        (2.0**-17, "0.00000762939453125"),
        (1e20, "100000002004087730000.0"),
        (1e21, "1.0000000200408773e21"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_numbers_are_written_as_rapidjson_writes_them(value: float, written: str) -> None:
    assert number(value).decode() == written


def test_strings_are_written_as_rapidjson_writes_them() -> None:
    assert quoted('a"\\/\b\f\n\r\t\x00\x1f\x7fé\u2028') == (
        '"a\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001F\x7fé\u2028"'.encode()
    )
    assert quoted("half of one: \ud83d") == b'"half of one: ?"'


def test_an_event_has_the_outputs_in_the_order_of_their_names() -> None:
    reply = VllmReply(
        2, stream=True, prefix="", outputs=frozenset({"finish_reason", "num_input_tokens"})
    )
    form = TritonForm(reply, 2, NAMED | {"id": "7"}, is_stream=True)
    deltas = [Delta("a", 1, num_prompt_tokens=5), Delta("b", 1, "stop", index=1)]
    assert form.write([*deltas]) == (
        b'data: {"finish_reason":["None","stop"],"id":"7","model_name":"m","model_version":"1",'
        b'"num_input_tokens":5,"text_output":["a","b"]}\n\n'
    )
    assert not form.is_over


def test_a_character_that_is_cut_by_the_end_of_a_chunk_comes_as_it_is() -> None:
    form, data = form_of(BodyReply()), '"é"'.encode()
    text = form.write([HttpChunk(data[:2])]) + form.write([HttpChunk(data[2:], is_last=True)])
    begin = f'data: {HEAD}"response":"'.encode()
    assert text == begin + b'\\"\xc3"}\n\n' + begin + b'\xa9\\""}\n\n'
    assert form.is_over


def test_outputs_that_the_model_does_not_have_are_left_out() -> None:
    form = form_of(TrtllmReply(prompts=((7,),), shows_ids=True))
    assert form.write([Delta("a", 1, "stop")]) == f"data: {HEAD[:-1]}}}\n\n".encode()


def test_what_is_no_stream_is_one_response() -> None:
    form = form_of(vllm(stream=False), is_stream=False)
    assert form.write([Delta("a", 1)]) == b""
    assert form.write([Delta("b", 1, "stop")]) == f'{HEAD}"text_output":"b"}}'.encode()
    assert form.headers["content-type"] == "application/json"


def test_several_responses_to_what_is_no_stream_are_an_error() -> None:
    form = form_of(vllm(), is_stream=False)
    assert form.write([Delta("a", 1)]) == b""
    refusal = form.refusal(EngineError("broken"))
    assert form.write([Delta("b", 1, "stop")]) == refusal.data
    assert (refusal.status, b"exactly 1 response" in refusal.data) == (200, True)


def test_an_error_is_an_event() -> None:
    form = form_of(vllm())
    data, is_end = form.failure(EngineError('it "broke"'))
    assert (data, is_end) == (b'data: {"error":"it \\"broke\\""}\n\n', True)
    refusal = form.refusal(EngineError("broken"))
    assert refusal.status == 400
    assert refusal.data == b'data: {"error":"broken"}\n\n'
    assert refusal.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_what_may_be_tried_again_says_so() -> None:
    refusal = form_of(vllm()).refusal(EngineDeadError("gone"))
    assert (refusal.status, refusal.data) == (503, b'{"error": "gone"}')
    assert refusal.headers["retry-after"]


def test_a_body_that_the_engine_refuses_is_an_error() -> None:
    form = form_of(BodyReply(), is_stream=False)
    with pytest.raises(HttpError) as raised:
        form.write([HttpChunk(b'{"error": 1}', is_last=True, status=404)])
    assert form.refusal(raised.value).data == b'{"error":"{\\"error\\": 1}"}'
