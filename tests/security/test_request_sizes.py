"""A client whose body is small to send and long to work on, on the loop that serves all streams."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.engines.bodies import (
    CHAT,
    MOST_ITEMS,
    TEXTS,
    BodyBounds,
    check_body,
    check_sampling,
)
from lmi_backend.errors import RequestError
from lmi_backend.generation import Sampling
from lmi_backend.structures import DEFAULT_BOUNDS

BOUNDS = BodyBounds(max_model_len=100, longest=10)
"""A prompt has at most 1,000 characters."""
LONG = "a" * 1001
HALF = "b" * 600
PIXELS = "data:image/png;base64," + "A" * 5000


def _check(body: bytes, bounds: BodyBounds) -> None:
    check_body(body, bounds)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


CALL = {"role": "assistant", "tool_calls": [{"arguments": LONG}]}
RESULT = user([{"type": "tool_result", "content": [text(LONG)]}])
# Of each road to the tokenizer: tokenize, completions, embeddings, scores, ranking, chats …
LONG_TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "a prompt": ({"prompt": LONG}, "prompt"),
    "one of the prompts": ({"prompt": ["a", LONG]}, "prompt"),
    "a suffix": ({"prompt": "a", "suffix": LONG}, "suffix"),
    "an input": ({"input": LONG}, "input"),
    "one of the inputs": ({"input": ["a", LONG]}, "input"),
    "a pair": ({"text_1": "a", "text_2": [LONG]}, "text_2"),
    "a query": ({"query": LONG, "documents": ["a"]}, "query"),
    "a document": ({"query": "a", "documents": ["a", LONG]}, "documents"),
    "a document of parts": ({"documents": [{"content": [text(LONG)]}]}, "documents"),
    "a message": ({"messages": [user(LONG)]}, "messages"),
    "messages": ({"messages": [user(HALF), user(HALF)]}, "messages"),
    "parts": ({"messages": [user([text(HALF), text(HALF)])]}, "messages"),
    "a call": ({"messages": [CALL]}, "messages"),
    "a result": ({"messages": [RESULT]}, "messages"),
    "a system's words": ({"system": HALF, "messages": [user(HALF)]}, "messages"),
    "tools": ({"messages": [], "tools": [{"function": {"description": LONG}}]}, "messages"),
    "a variable": ({"messages": [], "chat_template_kwargs": {"a": LONG}}, "messages"),
    "one of the chats": ({"messages": [[user("a")], [user(LONG)]]}, "messages"),
    "a response's input": ({"input": [user(HALF)], "instructions": HALF}, "input"),
    "text beside an image": (
        {"messages": [user([{"type": "image_url", "image_url": {"url": PIXELS}, "text": LONG}])]},
        "messages",
    ),
    "to be cut": ({"prompt": "a" * 1_000_001, "truncate_prompt_tokens": 5}, "prompt"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_text_that_cannot_fit_is_refused_before_it_is_tokenised(kind: str) -> None:
    body, field = LONG_TEXTS[kind]
    with pytest.raises(
        RequestError, match="characters; accepted: at most 1000: 100 tokens"
    ) as error:
        _check(json.dumps(body).encode(), BOUNDS)
    assert error.value.field == field


TOOLS = [
    {"type": "function", "name": f"f{n:0100}", "parameters": {"a": [1] * 9}} for n in range(9000)
]


@pytest.mark.parametrize("repeated", [{"tools": TOOLS[:4000], "a": "b" * 800_000}, {"a": TOOLS}])
@pytest.mark.parametrize("more", ["", "NaN"])
def test_what_a_response_repeats_is_bounded(repeated: dict[str, Any], more: str) -> None:
    body = {"input": "a", "metadata": repeated, "temperature": float(more or 1)}
    text = json.dumps(body).encode()
    with pytest.raises(
        RequestError, match=r"the members but input have .* at most 1048576: the ev"
    ):
        check_body(text, BodyBounds(), "/v1/responses")
    check_body(text, BodyBounds(), "/v1/chat/completions")


def test_the_input_of_a_response_is_not_repeated() -> None:
    parts = [user([text("a" * 300)] * 4000), user("b" * 500_000)]
    body = json.dumps({"input": parts, "instructions": "a" * 500_000}).encode()
    check_body(body, BodyBounds(), "/v1/responses")


FORMS: dict[str, Any] = {
    "text": "a",
    "list": ["a", "b"],
    "messages": [user("a")],
    "list of lists": [[user("a")], [user("b")]],
    "ids": [1, 2],
}


@pytest.mark.parametrize("beside", ["", "messages", "input", "prompt"])
@pytest.mark.parametrize("name", sorted({*CHAT, *TEXTS}))
def test_each_member_counts_whatever_stands_beside_it(name: str, beside: str) -> None:
    long = [LONG, [LONG], [{"a": {"b": LONG}}], [user(LONG)], [[user(LONG)]]]
    if name in ("tools", "functions"):
        long.append([{"parameters": {"properties": {LONG: {}}}}])
    for form in FORMS.values() if beside and beside != name else [None]:
        for value in long:
            body = {beside: form, name: value} if form else {name: value}
            with pytest.raises(RequestError, match="characters; accepted: at most 1000: 100"):
                _check(json.dumps(body).encode(), BOUNDS)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [LONG[:1000]] * 5},
        {"prompt": LONG, "truncate_prompt_tokens": 5},
        {"prompt": list(range(5000))},
        {"input": [[1] * 50] * 20},
        {"messages": [user([text("a"), {"type": "image_url", "image_url": {"url": PIXELS}}])]},
        {"messages": [[user(HALF)], [user(HALF)]]},
        {"messages": [user([{"type": "image", "source": {"data": PIXELS}}])]},
        {"query": HALF, "documents": [HALF, HALF]},
        {"prompt": "a", "prompt_embeds": "A" * 5000},
        {"messages": [{}] * MOST_ITEMS},
        {"prompt": "a,[{" * 250},
    ],
)
def test_what_fits_is_taken(body: dict[str, Any]) -> None:
    _check(json.dumps(body).encode(), BOUNDS)


@pytest.mark.parametrize(
    "name",
    ["stop", "stop_sequences", "stop_token_ids", "bad_words", "logit_bias", "allowed_token_ids"],
)
def test_lists_of_tokens_and_words_are_bounded_and_not_quoted(name: str) -> None:
    members: Any = [str(number) for number in range(2001)]
    if name == "logit_bias":
        members = dict.fromkeys(members, 1)
    with pytest.raises(RequestError) as error:
        _check(json.dumps({"prompt": "a", name: members}).encode(), BOUNDS)
    message = "has 2001 members; accepted: at most 2000 (option.max_structure_choices)"
    assert str(error.value) == f"{name} {message}"


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(stop=("a",) * 2001),
        Sampling(stop_token_ids=(1,) * 2001),
        Sampling(bad_words=("a",) * 2001),
        Sampling(extra={"logit_bias": dict.fromkeys(map(str, range(2001)), 1)}),
        Sampling(extra={"allowed_token_ids": [1] * 2001}),
    ],
)
def test_so_are_those_of_other_clients(sampling: Sampling) -> None:
    with pytest.raises(RequestError, match="has 2001 members; accepted: at most 2000"):
        check_sampling(sampling, DEFAULT_BOUNDS)


@pytest.mark.parametrize("name", ["prompt", "input", "documents", "text_2"])
def test_all_prompts_of_a_body_are_added_up(name: str) -> None:
    cut = {"truncate_prompt_tokens": 5}
    _check(json.dumps({name: ["a" * 1_000_000] * 8} | cut).encode(), BOUNDS)
    with pytest.raises(RequestError, match="the prompts have 8000001 characters together"):
        _check(json.dumps({name: ["a" * 1_000_000] * 8 + ["b"]} | cut).encode(), BOUNDS)


@pytest.mark.parametrize("words", ["a" * 16_385, ["a" * 10_000, "b" * 6_385]])
@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_the_characters_of_words_are_bounded(name: str, words: Any) -> None:
    with pytest.raises(RequestError, match="has 16385 characters; accepted: at most 16384"):
        _check(json.dumps({"prompt": "a", name: words}).encode(), BOUNDS)
    sampling = Sampling(**{name: tuple(words) if isinstance(words, list) else (words,)})
    with pytest.raises(RequestError, match=f"{name} has 16385 characters"):
        check_sampling(sampling, DEFAULT_BOUNDS)


@pytest.mark.parametrize("name", ["messages", "prompt", "input", "documents", "tools", "texts"])
def test_messages_prompts_and_documents_are_counted(name: str) -> None:
    body = {name: [{}] * (MOST_ITEMS + 1)}
    with pytest.raises(RequestError, match="has 4097 members; accepted: at most 4096") as error:
        _check(json.dumps(body).encode(), BOUNDS)
    assert error.value.field == name


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"a","x":[%s[]]}' % (b"[]," * 300_001),
        b'{"prompt":"a","x":[%s0]}' % (b'"",' * 300_001),
        b'{"prompt":"a",%s"b":0}' % (b'"":{},' * 300_001),
        b'{"prompt":"\\\\\\"","x":[%s0]}' % (b"0," * 300_001),
    ],
    ids=["lists", "texts", "members", "numbers"],
)
def test_values_are_counted_before_a_body_is_read(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(RequestError, match=r"the body has \d+ values; accepted: at most 300000"):
        _check(body, BOUNDS)


def test_commas_in_texts_are_no_values() -> None:
    long = BodyBounds(max_model_len=1_000_000, longest=10)
    prompt = 'a, "b", \\, \\", [' * 100_000
    _check(json.dumps({"prompt": prompt}).encode(), long)
    assert prompt.count(",") > 300_000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_body_in_another_encoding_hides_nothing(encoding: str) -> None:
    """vLLM reads it, and its quotes are other bytes."""
    with pytest.raises(RequestError, match="characters; accepted: at most 1000"):
        _check(json.dumps({"prompt": LONG}).encode(encoding), BOUNDS)
    values = '{"prompt":"a","x":[%s0]}' % ('"\\"",' * 300_001)
    with pytest.raises(RequestError, match="the body has"):
        _check(values.encode(encoding), BOUNDS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("media_io_kwargs", {"video": {"num_frames": -1}}),
        ("mm_processor_kwargs", {"max_pixels": 10**12, "min_pixels": 10**12}),
        ("mm_processor_kwargs", "anything"),
    ],
)
@pytest.mark.parametrize("size", [1, 400_000])
def test_clients_do_not_choose_how_media_are_decoded(field: str, value: Any, size: int) -> None:
    """Frames without a bound, images made larger: only for clients who are trusted."""
    bounds = BodyBounds(max_model_len=size, longest=10)
    body = json.dumps({"messages": [user("a" * size)], field: value}).encode()
    with pytest.raises(RequestError, match="trust_request_mm_kwargs=true") as refusal:
        _check(body, bounds)
    assert refusal.value.field == field
    _check(body, replace(bounds, trusts_media=True))
    _check(json.dumps({"messages": [], field: None}).encode(), bounds)
