"""What counts as a difference; tests/integration/test_replay.py compares real servers."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.migrate import kinds
from lmi_backend.migrate.framing import is_greedy
from lmi_backend.migrate.judge import Judge
from lmi_backend.migrate.records import RecordedAnswer, Request

GREEDY = {"temperature": 0}
CHAT = "/v1/chat/completions"


def request(body: Any, path: str = CHAT) -> Request:
    return Request(path, json.dumps(body).encode())


def answer(
    body: Any, kind: str = "application/json", status: int = 200, **more: str
) -> RecordedAnswer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RecordedAnswer(status, {"content-type": kind} | more, data)


def stream(*events: Any, named: bool = False) -> RecordedAnswer:
    lines = []
    for each in events:
        text = each if isinstance(each, str) else json.dumps(each)
        name = f"event: {each['type']}\n" if named else ""
        lines.append(f"{name}data: {text}\n\n")
    return answer("".join(lines).encode(), "text/event-stream")


def judged(
    was: RecordedAnswer, now: RecordedAnswer, body: Any = None, *ignored: str
) -> list[tuple[str, str]]:
    found = Judge(ignored=ignored).differences(request(body or {}), was, now)
    assert {each.kind for each in found} <= kinds.ADVICE.keys()
    return [each.key for each in found]


def chat(text: str, reason: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, **more}
    usage = {"prompt_tokens": 3, "completion_tokens": len(text), "total_tokens": 3 + len(text)}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": text, "choices": [choice], "usage": usage}


def piece(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


CHUNK = (
    '{"id": "1", "created": 5, "choices": [{"index": 0, '
    '"delta": {"role": "assistant", "content": TEXT}, "finish_reason": REASON}]}'
)
PIECES = (('"one"', "null"), ('" two"', "null"), ('""', '"length"'))
TOKENS = [{"id": 7, "text": "one", "log_prob": -0.5}]
DETAILS = {"finish_reason": "length", "generated_tokens": 1, "tokens": TOKENS}
ANSWERS = {
    "stream": stream(
        *(CHUNK.replace("TEXT", text).replace("REASON", reason) for text, reason in PIECES),
        "[DONE]",
    ),
    "whole": answer({"generated_text": "one", "details": DETAILS}),
    "lines": answer(b'{"token": {"id": 7}}\n{"generated_text": "a"}\n', "application/jsonlines"),
    "error": answer({"error": {"message": "no model", "type": "NotFoundError"}}, status=404),
    "Amazon's": answer(
        b"\0\0\0\x12" + b"\0" * 8 + b"{}" + b"\0" * 4, "application/vnd.amazon.eventstream"
    ),
}


@pytest.mark.parametrize(
    ("of", "old", "new", "kind"),
    [
        ("stream", "data: [DONE]\n\n", "", kinds.FRAMING),
        ("stream", "[DONE]", '"[DONE]"', kinds.FRAMING),
        ("stream", "data: ", "data: [DONE]\n\ndata: ", kinds.FRAMING),
        (
            "stream",
            '"length"}]}',
            '"length"}]}\n\ndata: {"finish_reason": "length"}',
            kinds.FRAMING,
        ),
        ("stream", "two", "two ", kinds.GREEDY),
        ("stream", "data: ", "data:", kinds.FRAMING),
        ("stream", "[DONE]\n\n", "[DONE]", kinds.FRAMING),
        ("stream", "\n", "\r\n", kinds.FRAMING),
        ("stream", "data: {", "event: chunk\ndata: {", kinds.FRAMING),
        ("stream", ', "choices"', ',\ndata: "choices"', kinds.FRAMING),
        ("stream", "data: [", 'data: {"x": "\xc3"}\n\ndata: [', kinds.FRAMING),
        ("stream", '"role": "assistant", "content": ""', '"content": ""', kinds.MISSING),
        ("lines", "generated_text", "text", kinds.MISSING),
        ("lines", '"a"}\n', '"a"}', kinds.FRAMING),
        ("whole", '"details"', '"calls": [1], "details"', kinds.ADDED),
        ("whole", "}]}}", "", kinds.BODY),
        ("whole", '{"generated_text"', '\xef\xbb\xbf{"generated_text"', kinds.BODY),
        ("whole", "-0.5", "-0.8", kinds.LOG_PROBABILITY),
        ("whole", "-0.5", "NaN", kinds.TYPE),
        ("whole", '_tokens": 1', '_tokens": 2', kinds.USAGE),
        ("whole", '"id": 7', '"id": 8', kinds.VALUE),
        ("error", "NotFoundError", "x", kinds.VALUE),
        ("Amazon's", "{}", "{}\0", kinds.FRAMING),
        # What no client sees.
        ("stream", "data: [", "retry: 100\n\ndata: [", ""),
        ("stream", "data: ", "id: 1\ndata: ", ""),
        ("stream", '"id": "1", "created": 5', '"created": 9, "id": "other"', ""),
        ("whole", "one", "\\u006fne", ""),
        ("whole", "-0.5", "-0.51", ""),
        ("error", "no model", "none", ""),
    ],
)
def test_an_answer_with_a_part_changed(of: str, old: str, new: str, kind: str) -> None:
    was = ANSWERS[of]
    now = replace(was, body=was.body.replace(old.encode(), new.encode("latin-1")))
    assert now != was
    found = {each for each, _ in judged(was, now, GREEDY)}
    assert kind in found if kind else not found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("data: [", 'data: {"error": {"message": "gone"}}\n\ndata: ['),
        ("data: [", "data: alive\n\ndata: ["),
        ('"length"', "null"),
    ],
    ids=["an error", "no JSON", "no reason"],
)
def test_what_ends_a_stream_is_judged_of_a_sampled_one_too(old: str, new: str) -> None:
    was = ANSWERS["stream"]
    now = replace(was, body=was.body.replace(old.encode(), new.encode()))
    assert kinds.FRAMING in {kind for kind, _ in judged(was, now)}


def test_sampled_text_is_judged_by_its_structure_alone() -> None:
    was, now = answer(chat("a")), answer(chat("bcd", "length"))
    assert judged(was, now) == []
    assert judged(was, now, GREEDY) == [(kinds.GREEDY, "choices[].message.content")]
    assert judged(was, answer(chat("bcd", "eos_token"))) == [
        (kinds.FINISH, "choices[].finish_reason")
    ]
    wrong = chat("bcd")
    wrong["usage"]["prompt_tokens"] = 4
    assert judged(was, answer(wrong)) == [(kinds.USAGE, "usage.prompt_tokens")]


def test_where_a_stream_is_cut_is_no_difference() -> None:
    whole = stream(piece("a b"), piece("", "stop"), "[DONE]")
    cut = stream(piece("a"), piece(" "), piece("b"), piece("", "stop"), "[DONE]")
    joined = stream(piece("a b", "stop"), "[DONE]")
    for now in (cut, joined):
        assert judged(whole, now, GREEDY) == []
        assert judged(now, whole, GREEDY) == []
    # Comments keep a connection open.
    assert judged(whole, answer(b": a\n\n" + whole.body, "text/event-stream"), GREEDY) == []


def test_a_usage_so_far_in_each_event_does_not_depend_on_the_cuts() -> None:
    def event(count: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return piece(text, reason) | {"usage": {"completion_tokens": count}}

    end: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": 2}}
    cut = stream(event(1, "a"), event(2, "", "stop"), end, "[DONE]")
    whole = stream(event(2, "a", "stop"), end, "[DONE]")
    assert judged(cut, whole, GREEDY) == judged(whole, cut, GREEDY) == []
    early = stream(piece("a"), end, piece("", "stop"), "[DONE]")
    late = stream(piece("a"), piece("", "stop"), end, "[DONE]")
    assert judged(late, early, GREEDY) == [(kinds.ORDER, "")]


def test_an_event_may_have_what_another_server_writes_in_two() -> None:
    def event(text: str | None, likely: Any, ids: Any, reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        logprobs = likely and {"content": [{"token": each} for each in likely]}
        choice = {"delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {"choices": [choice], "ids": ids}

    role = {"choices": [{"delta": {"role": "assistant"}, "logprobs": None}]}
    apart = stream(
        role,
        event(None, "a", [1], None),
        event("ab", "b", None, None),
        event("c", "c", None, "stop"),
    )
    at_once = stream(role, event("abc", "abc", [1], "stop"))
    for was, now in ((apart, at_once), (at_once, apart)):
        assert judged(was, now, GREEDY) == []
    wrong = stream(role, event("abc", "abc", "1", "stop"))
    assert judged(apart, wrong, GREEDY) == [(kinds.TYPE, "ids")]


def test_a_text_may_be_null_before_the_last_event() -> None:
    was, now = (stream({"generated_text": None}, {"generated_text": text}) for text in "ab")
    assert judged(was, now) == []
    assert judged(was, now, GREEDY) == [(kinds.GREEDY, "generated_text")]


def test_named_events_come_in_their_order() -> None:
    def anthropic(*names: str) -> RecordedAnswer:
        return stream(*({"type": name, "index": 0} for name in names), named=True)

    order = ("message_start", "content_block_start", "content_block_stop", "message_stop")
    assert judged(anthropic(*order), anthropic("ping", *order)) == []
    swapped = (order[0], order[2], order[1], order[3])
    assert judged(anthropic(*order), anthropic(*swapped)) == [(kinds.ORDER, "")]
    assert judged(anthropic(*order), anthropic(*order[:-1])) == [
        (kinds.FRAMING, "event message_stop")
    ]


def choices(*order: int) -> RecordedAnswer:
    pieces = [{"index": each, "delta": {"content": "a"}, "finish_reason": None} for each in order]
    return stream(*({"choices": [each]} for each in pieces), "[DONE]")


def test_choices_of_a_stream_come_in_any_order() -> None:
    assert judged(choices(0, 1, 0, 1), choices(1, 1, 0, 0), GREEDY) == []
    assert (kinds.VALUE, "choices[].index") in judged(choices(0, 1), choices(0, 2))


def test_what_follows_from_a_sampled_text_may_be_absent() -> None:
    def lines(*tokens: dict[str, Any]) -> RecordedAnswer:
        return stream(*({"token": {"log_prob": -0.5, **each}} for each in tokens))

    plain = lines({"text": "a"}, {"text": "b"})
    special = lines({"text": "c"}, {"text": "", "special_token": True})
    for was, now in ((plain, special), (special, plain)):
        assert judged(was, now, {"prompt": "a"}) == []
        assert judged(was, now, GREEDY) == [(kinds.NEAR_TIE, "token.text")]
    text, tool = answer(chat("a")), answer(chat("", "tool_calls"))
    called = json.loads(tool.body)
    called["choices"][0]["message"] |= json.loads(answer(calls("{}")).body)["choices"][0]["message"]
    called["choices"][0]["message"]["content"] = None
    assert judged(text, answer(called)) == []
    assert judged(text, answer(called), GREEDY) != []


def test_what_a_stream_keeps_to_is_judged_whatever_the_text() -> None:
    usage = {"usage": {"prompt_tokens": 3}}
    was = stream({"choices": [{"index": 0}]}, {"choices": [], **usage}, "[DONE]")
    now = stream({"choices": [{"index": 0}]}, {"choices": [{"index": 0}], **usage}, "[DONE]")
    assert judged(was, now) == [(kinds.LENGTH, "choices")]
    delta = {"choices": [{"delta": {"content": "a", "role": "assistant"}}]}
    assert judged(stream(delta, piece("b", "stop")), stream(delta, delta)) != []


def test_values_of_headers_that_clients_read() -> None:
    def allowed(value: str) -> RecordedAnswer:
        return answer({}, allow=value)

    assert judged(allowed("GET, POST"), allowed("post,get")) == []
    assert judged(allowed("GET"), allowed("POST")) == [(kinds.HEADER, "allow")]
    basic, bearer = (answer({}, **{"www-authenticate": each}) for each in ("Basic a", "Bearer"))
    assert judged(basic, bearer) == [(kinds.HEADER, "www-authenticate")]
    own, other = (answer({}, **{"x-request-id": each}) for each in ("own", "other"))
    asked = replace(request({}), headers={"x-request-id": "own"})
    assert Judge().differences(request({}), own, other) == []
    assert [each.kind for each in Judge().differences(asked, own, other)] == [kinds.HEADER]


def test_another_status_or_type_is_a_difference() -> None:
    was = answer({})
    assert judged(was, answer({}, "text/plain")) == [(kinds.CONTENT_TYPE, "")]
    assert judged(was, answer({"a": 1}, "text/plain", status=500)) == [(kinds.STATUS, "")]


def tokens(*pairs: tuple[str, float], others: dict[str, float] | None = None) -> dict[str, Any]:
    near = [{"token": name, "logprob": value} for name, value in (others or {}).items()]
    content = [{"token": t, "logprob": p, "top_logprobs": near} for t, p in pairs]
    exchange = chat("".join(text for text, _ in pairs))
    exchange["choices"][0]["logprobs"] = {"content": content}
    return exchange


@pytest.mark.parametrize(
    ("others", "kind"),
    [({"b": -0.70, "c": -0.72}, kinds.NEAR_TIE), ({"b": -0.1, "c": -2.5}, kinds.GREEDY), ({}, "")],
)
def test_a_near_tie_of_greedy_text_is_said_as_such(others: dict[str, float], kind: str) -> None:
    first = others.get("b", -0.1)
    was = answer(tokens(("a", -0.1), ("b", first), others=others))
    now = answer(tokens(("a", -0.1), ("c", -0.75), others=others))
    (found,) = Judge().differences(request(GREEDY), was, now)
    assert found.kind == (kind or kinds.GREEDY)
    assert "from character 1" in found.was
    assert f"log probability {others.get('c', -0.75):.3f}" in found.now


def calls(arguments: str) -> dict[str, Any]:
    return chat("", tool_calls=[{"id": "1", "function": {"name": "f", "arguments": arguments}}])


@pytest.mark.parametrize(
    ("now", "body", "kind"),
    [
        ('{"a":1}', GREEDY, ""),
        ('{"a": 2}', GREEDY, kinds.TOOL),
        ('{"a": 2}', {}, ""),
        ('{"a": 2', {}, kinds.TOOL),
        ("[2]", {}, kinds.TYPE),
    ],
)
def test_arguments_of_tools_are_compared_as_json(now: str, body: Any, kind: str) -> None:
    found = judged(answer(calls('{"a": 1}')), answer(calls(now)), body)
    place = "choices[].message.tool_calls[].function.arguments"
    assert found == ([(kind, place)] if kind else [])


def test_numbers_within_the_tolerance_are_the_same() -> None:
    was, near, far = (answer({"data": [{"embedding": [0.5, n]}]}) for n in (0.1, 0.12, 0.2))
    assert judged(was, near) == []
    assert judged(was, far) == [(kinds.NUMBER, "data[].embedding[]")]
    longer = answer({"data": [{"embedding": [0.5, 0.1, 0.1]}]})
    assert judged(was, longer) == [(kinds.LENGTH, "data[].embedding")]


@pytest.mark.parametrize(
    ("was", "now", "kind", "place"),
    [
        ({"a": None}, {}, kinds.NULL, "a"),
        ({}, {"a": None}, kinds.NULL, "a"),
        ({"a": 1}, {}, kinds.MISSING, "a"),
        ({"a": {"b": {"c": 1}}}, {}, kinds.MISSING, "a"),
        ({"a": 1}, {"a": "1"}, kinds.TYPE, "a"),
        ({"a": 1}, {"a": True}, kinds.TYPE, "a"),
        ({"a": 1}, {"a": None}, kinds.TYPE, "a"),
        ({"a": 1}, {"a": 1.0}, kinds.NUMBER_FORM, "a"),
        ({"a": [{"b": 1}, {"b": 1}]}, {"a": [{"b": 1}, {}]}, kinds.MISSING, "a[].b"),
        ({"a": [1]}, {"a": []}, kinds.LENGTH, "a"),
        ({"a": {}}, {"a": []}, kinds.TYPE, "a"),
        ([{"a": "b"}], [{"a": "c"}], kinds.VALUE, "[].a"),
    ],
)
def test_members_and_their_types(was: Any, now: Any, kind: str, place: str) -> None:
    assert (kind, place) in judged(answer(was), answer(now))
    assert judged(answer(was), answer(was)) == []


def test_headers_that_clients_read() -> None:
    headers = {"x-own": "1", "retry-after": "2", "date": "a", "x-envoy-upstream": "b"}
    was, now = answer({}, **headers), answer({}, "application/json; charset=utf-8")
    assert judged(was, now) == [(kinds.HEADER, "x-own"), (kinds.HEADER, "retry-after")]
    assert judged(was, now, None, "header:x-*") == [(kinds.HEADER, "retry-after")]
    # A data capture has no headers and no status.
    assert judged(RecordedAnswer(None, {}, b"{}"), now) == []


def test_a_place_in_a_list_can_be_ignored() -> None:
    was, now = answer({"a": [{"b": 1}]}), answer({"a": [{"b": 2}]})
    assert judged(was, now, None, "value:a[].b") == []


def test_an_answer_that_is_hostile_is_judged() -> None:
    deep = answer(("[" * 5000 + "]" * 5000).encode())
    wide = answer({"choices": [[[None]], {"logprobs": {"tokens": [1], "token_logprobs": ["a"]}}]})
    odd = answer(b"\xff\x00", "application/vnd.amazon.eventstream")
    huge, small = (answer({"a": [1.5, number], "logprob": number}) for number in (10**400, 1))
    every = (deep, wide, odd, huge, small)
    for was in every:
        for now in every:
            assert bool(judged(was, now, GREEDY)) is (was is not now)


@pytest.mark.parametrize(
    ("body", "is_expected"),
    [
        ({"messages": []}, False),
        ({"messages": [], "temperature": 0}, True),
        ({"prompt": "a", "top_k": 1}, True),
        ({"inputs": "a"}, True),
        ({"inputs": "a", "parameters": {"temperature": 0.5}}, False),
        ({"inputs": "a", "parameters": {"do_sample": True}}, False),
        ({"inputs": "a", "parameters": {"do_sample": False, "temperature": 0.5}}, True),
        ({"text_input": "a", "temperature": 0.0}, True),
        ([], False),
    ],
)
def test_which_requests_are_greedy(body: Any, is_expected: bool) -> None:
    assert is_greedy(request(body)) is is_expected
