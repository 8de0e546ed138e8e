"""What requests of all clients ask for: answers, a tenant, a trace."""

import json
from typing import Any

import pytest

from lmi_backend.clients.parameters import FIELDS, IGNORED, NEUTRAL
from lmi_backend.clients.request import (
    MANY,
    promise_of,
    read_request,
    take_trace,
    wanted,
    with_trace,
)
from lmi_backend.clients.spec import Cancel, ParsedRequest
from lmi_backend.clients.values import OBJECT, OBJECT_OR_TEXT, TOKEN_WEIGHTS
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import HttpError, LmiError, QuotedError, RequestError
from lmi_backend.generation import GenerateRequest, HttpRequest

# The example of the standard.
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"traceparent": PARENT, "tracestate": "vendor=value"}


@pytest.mark.parametrize("parent", [PARENT, "", "00-short", PARENT.upper(), 7, None])
def test_a_trace_is_taken_out_of_the_parameters_and_dropped_if_it_is_broken(parent: Any) -> None:
    trace = TRACE | {"traceparent": parent}
    parameters = {"max_tokens": 3} | {name.title(): text for name, text in trace.items()}
    assert take_trace(parameters) == (trace if parent == PARENT else {})
    assert parameters == {"max_tokens": 3}


def test_every_prompt_of_a_request_or_its_call_belongs_to_the_trace() -> None:
    work = with_trace((GenerateRequest("a"), GenerateRequest("b")), TRACE)
    assert isinstance(work, tuple)
    assert [request.trace_headers for request in work] == [TRACE, TRACE]
    call = with_trace(HttpRequest("/v1/completions", b"{}", {"accept": "x"}), TRACE)
    assert isinstance(call, HttpRequest)
    assert call.headers == {"accept": "x"} | TRACE


_CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        ('{"prompt": "a"}', 1),
        ('{"prompt": "a", "n": 3}', 3),
        ('{"prompt": ["a", "b"], "n": 3}', 6),
        ('{"prompt": [1, 2, 3], "n": 2}', 2),
        ('{"prompt": [[1, 2], [3]], "n": 2}', 4),
        ('{"prompt": [ [1], "b"], "n": null}', 2),
        ('{"prompt_embeds": ["eA==", "eA=="]}', 2),
        ('{"messages": [{"role": "user", "content": "a"}], "n": 5}', 5),
        # As pydantic reads them.
        ('{"prompt": "a", "n": "4"}', 4),
        ('{"prompt": "a", "n": 4.0}', 4),
        ('{"prompt": ["a", "b"], "n": 4, "x": NaN}', 8),
        ('{"prompt": "a", "n": 4, "n": 100000000000000000000}', 100000000000000000000),
        ('{"prompt": ["a"], "n": 0}', 1),
        ('{"prompt": [], "n": -1}', 1),
        ('{"prompt": "a", "n": "many"}', 1),
        ('{"prompt": ["a", "b"], "n": Infinity}', 1),
        ('{"prompt": "a", "n": [2]}', 1),
        ('"n"', 1),
        ("no JSON", 1),
        ("[1]", 1),
        ("[" * 100_000, 1),
    ],
)
def test_a_body_counts_as_the_answers_it_asks_for(body: str, answers: int) -> None:
    for path in ("/v1/completions", _CHAT):
        assert wanted(HttpRequest(path, body.encode())).width == answers


LARGE = "a" * 300_000


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (f'{{"prompt": "{LARGE}", "n": 3}}', 3),
        (f'{{"prompt": ["{LARGE}", "b", [1]], "n": 2}}', 6),
        (f'{{"prompt": [[1], "{LARGE}"]}}', 2),
        ('{"prompt": [' + "1, " * 100_000 + "1]}", 1),
        ('{"prompt": [' + '"", ' * 200_000 + '""]}', MANY + 1),
        ('{"prompt": [' + "[], " * 2_000 + f'"{LARGE}"]' + "}", 2_001),
        (f'{{"prompt": null, "x": "{LARGE}"}}', 1),
        (f'{{"prompt": ["{LARGE}", "b"], "y": Infinity, "n": 2}}', 4),
    ],
)
def test_a_large_body_counts_without_being_taken_apart(body: str, answers: int) -> None:
    assert wanted(HttpRequest("/v1/completions", body.encode())).width == answers


@pytest.mark.parametrize("rest", ['"n": NaN', '"n": 1', "oops"])
def test_a_large_body_that_is_no_json_is_refused(rest: str) -> None:
    body = f'{{"prompt": [{"1, " * 300_000} 1], "y": Infinity, {rest}}}'.encode()
    with pytest.raises(RequestError, match=r"the body has \d+ values; accepted"):
        wanted(HttpRequest("/v1/completions", body))


def test_other_bodies_count_as_one() -> None:
    assert wanted(HttpRequest("/v1/embeddings", b'{"input": ["a", "b"], "n": 3}')).width == 1


def pieces(path: str, body: dict[str, Any], *, spaces: int = 0) -> list[bytes]:
    """Return what is read of a body's prompt."""
    data = json.dumps(body).encode() + b" " * spaces
    return [bytes(each) for each in wanted(HttpRequest(path, data), reads_all=True).prompt]


MESSAGES = [{"role": "system", "content": "s" * 300}, {"role": "user", "content": "a"}]
WRITTEN = [json.dumps(each).encode() for each in MESSAGES]


@pytest.mark.parametrize(
    ("path", "body", "found"),
    [
        (_CHAT, {"messages": MESSAGES, "model": "m"}, [b'"m"', *WRITTEN]),
        (_CHAT, {"seed": 1, "tools": [1], "messages": MESSAGES}, [b"[1]", *WRITTEN]),
        ("/v1/messages", {"system": "x", "messages": MESSAGES}, [b'"x"', *WRITTEN]),
        ("/v1/responses", {"input": "hi", "instructions": "x"}, [b'"x"', b'"hi"']),
        ("/v1/responses", {"input": MESSAGES}, [b"", *WRITTEN]),
        ("/v1/completions", {"prompt": "abc"}, [b"", b'"abc"']),
        ("/v1/completions", {"prompt": [1, 2]}, [b"", b"[1, 2]"]),
        ("/v1/embeddings", {"input": "abc"}, []),
    ],
)
@pytest.mark.parametrize("spaces", [0, 300_000], ids=["small", "large"])
def test_a_prompt_is_read_in_the_order_of_templates(
    path: str, body: dict[str, Any], found: list[bytes], spaces: int
) -> None:
    assert pieces(path, body, spaces=spaces) == found


@pytest.mark.parametrize("name", ["cache_salt", "chat_template_kwargs", "model", "documents"])
def test_what_engines_keep_apart_differs_from_the_first_byte(name: str) -> None:
    one, other = (pieces(_CHAT, {"messages": MESSAGES, name: value}) for value in ("a", "b"))
    assert one[0] != other[0]


def test_a_body_may_name_its_session_and_its_user() -> None:
    for key in ("s", None, 5):
        body = json.dumps({"messages": [], "prompt_cache_key": key}).encode()
        session = wanted(HttpRequest(_CHAT, body), reads_all=True).session
        assert session == (key if isinstance(key, str) else "")
    named = {"safety_identifier": "hashed", "user": "Ann \u00e9"}
    for left, user in ((named, "hashed"), ({"user": named["user"]}, "Ann é"), ({"user": 7}, "")):
        body = json.dumps({"messages": []} | left).encode()
        assert wanted(HttpRequest(_CHAT, body), reads_all=True).user == user


@pytest.mark.parametrize("body", [b"{", b'{"messages": 5, "n": "x"}', b"[" * 100_000])
def test_a_prompt_that_cannot_be_read_is_none(body: bytes) -> None:
    for path in (_CHAT, "/v1/messages"):
        assert list(wanted(HttpRequest(path, body), reads_all=True).prompt) == []


LMI_BODY = {"inputs": "p", "parameters": {"tenant": "of the body"}}
CHAT_BODY = {"messages": [], "tenant": "is not looked for there"}


def read_whole(
    inputs: dict[str, list[Any]], *, is_custom: bool = False, **parameters: Any
) -> ParsedRequest:
    return read_request([inputs], parameters, Context(is_custom=is_custom))


def whole(body: Any, **headers: str) -> dict[str, list[Any]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"request": [json.dumps(body)], "headers": [json.dumps(named)]}


@pytest.mark.parametrize(
    ("inputs", "parameters", "tenant"),
    [
        ({"inputs": ["p"]}, {"tenant": "a"}, "a"),
        ({"text_input": ["p"]}, {"tenant": "a"}, "a"),
        ({"text_input": ["p"], "bad_words": [""]}, {"tenant": "a"}, "a"),
        ({"input_ids": [1, 2]}, {"tenant": "a"}, "a"),
        ({"embedding_request": ['{"input": "p"}']}, {"tenant": "a"}, "a"),
        (whole(LMI_BODY, x_tenant_id="of the header"), {"tenant": "a"}, "a"),
        (whole(CHAT_BODY), {"tenant": "a"}, "a"),
        (whole(LMI_BODY), {}, "of the body"),
        (whole(LMI_BODY, X_Tenant_Id="of the header"), {}, "of the header"),
        (whole(CHAT_BODY, x_tenant_id="b"), {}, "b"),
        (whole(CHAT_BODY, x_tenant_id="b", x_gateway_inference_fairness_id="c"), {}, "c"),
        (whole(CHAT_BODY), {}, ""),
        ({"inputs": ["p"]}, {}, ""),
        ({"text_input": ["p"], "sampling_parameters": ['{"tenant": "d"}']}, {}, "d"),
    ],
)
def test_whose_word_counts(
    inputs: dict[str, list[Any]], parameters: dict[str, str], tenant: str
) -> None:
    assert read_whole(inputs, **parameters).tenant == tenant


def test_the_engine_is_not_told() -> None:
    for inputs in ({"inputs": ["p"]}, {"text_input": ["p"]}, {"input_ids": [1]}):
        assert read_whole(inputs, tenant="secret").work == read_whole(inputs).work
        assert not read_whole(inputs, tenant="secret").dropped


def test_the_users_own_code_still_sees_what_it_was_sent() -> None:
    taken = read_whole({"inputs": ["p"]}, is_custom=True, tenant="a")
    assert taken.tenant == "a"
    assert isinstance(taken.work, HttpRequest)
    assert json.loads(taken.work.body)["parameters"] == {"tenant": "a"}


@pytest.mark.parametrize("tenant", [7, ["a"], {}, "\ud800"])
def test_a_tenant_is_a_string(tenant: Any) -> None:
    with pytest.raises(LmiError, match=r"tenant .*accepted: a string"):
        read_whole({"embedding_request": ['{"input": "p"}']}, tenant=tenant)
    with pytest.raises(HttpError, match="tenant"):
        read_whole(whole({"inputs": "p", "parameters": {"tenant": tenant}}))


@pytest.mark.parametrize(
    ("outside", "parameters", "tokens", "dropped"),
    [
        ({"max_new_tokens": 5}, {}, 5, ()),
        ({"max_new_tokens": 5}, {"max_new_tokens": 6}, 6, ()),
        ({"max_tokens": 5}, {"max_new_tokens": 6}, 6, ()),
        ({"max_new_tokens": None}, {}, 30, ()),
        ({"tools": [], "max_new_tokens": 5}, {"maxTokens": 6}, 5, ("tools", "maxTokens")),
    ],
)
def test_what_stands_outside_of_the_parameters_counts_or_is_noted(
    outside: dict[str, Any], parameters: dict[str, Any], tokens: int, dropped: tuple[str, ...]
) -> None:
    parsed = read_whole(whole({"inputs": "a", "parameters": parameters} | outside))
    assert isinstance(parsed.work, tuple)
    assert (parsed.work[0].sampling.max_tokens, parsed.dropped) == (tokens, dropped)


@pytest.mark.parametrize(("dialect", "is_older"), [("legacy", True), ("async", False)])
def test_a_chat_body_is_read_as_the_handlers_of_its_dialect_do(
    dialect: Any, is_older: bool
) -> None:
    body = {"messages": [], "top_logprobs": 2}
    context = Context(clients=ClientSettings(dialect=dialect))
    inputs = {**whole(body), "path": ["/invocations"]}
    work = read_request([inputs], {}, context).work
    assert isinstance(work, HttpRequest)
    assert ("top_logprobs" in json.loads(work.body)) != is_older


def read(
    inputs: dict[str, list[Any]], dialect: Any = "legacy", **parameters: Any
) -> tuple[GenerateRequest, Any]:
    taken = read_request([inputs], parameters, Context(ClientSettings(dialect=dialect)))
    assert isinstance(taken.work, tuple)
    return taken.work[0], taken.reply


def lmi(dialect: Any = "legacy", **parameters: Any) -> GenerateRequest:
    return read({"inputs": ["p"]}, dialect, **parameters)[0]


def vllm(**parameters: Any) -> GenerateRequest:
    return read({"text_input": ["p"]}, **parameters)[0]


LMI_INPUTS: dict[str, list[Any]] = {"inputs": ["p"]}
VLLM_INPUTS: dict[str, list[Any]] = {"text_input": ["p"]}
OBJECT_SCHEMA = {"type": "object"}
REPEATED = {"temperature": "0.1", "top_p": "0.95", "max_tokens": "100"}
"""What the backend's own client sends in the tensor, and as text beside it."""


def of_json(**parameters: Any) -> dict[str, list[Any]]:
    return VLLM_INPUTS | {"sampling_parameters": [json.dumps(parameters)]}


def structured(**structures: Any) -> dict[str, Any]:
    return {"extra": {"structured_outputs": structures}}


@pytest.mark.parametrize(
    ("inputs", "parameters", "expected"),
    [
        (
            LMI_INPUTS | {"stop": ["a", ""], "stop_token_ids": [1, 2], "bad_words": []},
            {},
            {"stop": ("a",), "stop_token_ids": (1, 2), "bad_words": ()},
        ),
        (
            of_json(max_tokens="7", temperature="0", ignore_eos="True", logit_bias={"5": 1}),
            {},
            {
                "max_tokens": 7,
                "temperature": 0.0,
                "ignore_eos": True,
                "extra": {"logit_bias": {5: 1.0}},
            },
        ),
        (LMI_INPUTS, {"stream": True}, {"stream": True}),
        (VLLM_INPUTS, REPEATED, {"temperature": 0.1, "top_p": 0.95, "max_tokens": 100}),
        # What the tensor says is not looked for beside it.
        (of_json(max_tokens=6), {"max_new_tokens": "many", "max_tokens": -1}, {"max_tokens": 6}),
        (
            LMI_INPUTS,
            {"logit_bias": {"5": 1e300, "6": -101, "7": 3}},
            {"extra": {"logit_bias": {5: 100, 6: -100, 7: 3}}},
        ),
        (VLLM_INPUTS, {"guided_regex": '"a"'}, structured(regex='"a"')),
        (VLLM_INPUTS, {"regex": "[0-9]+"}, structured(regex="[0-9]+")),
        (LMI_INPUTS, {"ebnf": "root ::= 'a'"}, structured(grammar="root ::= 'a'")),
        (LMI_INPUTS, {"json_schema": OBJECT_SCHEMA}, structured(json=OBJECT_SCHEMA)),
        (
            VLLM_INPUTS,
            {"json_schema": {"name": "x", "schema": OBJECT_SCHEMA}},
            structured(json=OBJECT_SCHEMA),
        ),
        (
            whole({"inputs": "a", "grammar": {"type": "regex", "value": "[0-9]"}}),
            {},
            structured(regex="[0-9]"),
        ),
        (LMI_INPUTS, {"seed": "5", "priority": -1}, {"seed": 5, "priority": -1, "extra": {}}),
        (LMI_INPUTS | {"adapters": ["a"]}, {}, {"adapter": "a"}),
        (LMI_INPUTS, {"lora_name": "a"}, {"adapter": "a"}),
        (LMI_INPUTS | {"adapters": ["a"]}, {"lora_name": "a"}, {"adapter": "a"}),
        (VLLM_INPUTS, {"do_sample": False}, {"temperature": 0.0}),
        (LMI_INPUTS, {"n_predict": 3}, {"max_tokens": 3}),
        (LMI_INPUTS, {"num_predict": 3}, {"max_tokens": 3}),
        # LiteLLM's `triton/` sends its own max_tokens with each request.
        (LMI_INPUTS, {"max_tokens": 2000, "max_completion_tokens": 4}, {"max_tokens": 4}),
        (VLLM_INPUTS, {"max_tokens": 2000, "max_completion_tokens": 4}, {"max_tokens": 4}),
        (VLLM_INPUTS | {"bad_words": [""]}, {"max_completion_tokens": 4}, {"max_tokens": 4}),
        (VLLM_INPUTS, {"max_completion_tokens": None, "max_tokens": 5}, {"max_tokens": 5}),
    ],
)
def test_what_is_requested_of_the_engine(
    inputs: dict[str, list[Any]], parameters: dict[str, Any], expected: dict[str, Any]
) -> None:
    request = read(inputs, **parameters)[0]
    found = {
        name: getattr(request if hasattr(request, name) else request.sampling, name)
        for name in expected
    }
    assert found == expected


@pytest.mark.parametrize(
    ("dialect", "parameters", "temperature"),
    [
        ("legacy", {}, 0.0),
        ("legacy", {"temperature": 0.7}, 0.7),
        ("legacy", {"do_sample": True}, None),
        ("legacy", {"n": 2}, None),
        ("legacy", {"do_sample": True, "temperature": 0.7}, 0.7),
        ("legacy", {"do_sample": False, "temperature": 0.7}, 0.0),
        ("async", {}, None),
        ("async", {"do_sample": False}, 0.0),
        ("async", {"do_sample": False, "temperature": 0.5}, 0.0),
        ("async", {"temperature": 0.7}, 0.7),
    ],
)
def test_when_an_lmi_body_samples(
    dialect: str, parameters: dict[str, Any], temperature: float | None
) -> None:
    assert lmi(dialect, **parameters).sampling.temperature == temperature


def test_a_client_may_not_stop_a_request_where_the_option_forbids_it() -> None:
    context = Context(ClientSettings(stop_by_id=False))
    with pytest.raises(RequestError, match=r"^stop is switched off \(option.stop_by_id=false\)"):
        read_request([{"stop": [True]}], {}, context, is_trtllm=True)


def test_only_in_trtllms_form_a_flag_stops_a_request() -> None:
    inputs = {"input_ids": [0], "stop": [True]}
    assert read_request([inputs], {}, Context(), is_trtllm=True).work == Cancel()
    with pytest.raises(RequestError, match="stop"):
        read_request([inputs], {}, Context())


def test_names_of_triton_are_no_parameters() -> None:
    assert lmi(**dict.fromkeys(IGNORED, 1), triton_x=1) == lmi()


@pytest.mark.parametrize(
    ("inputs", "parameters", "is_trtllm", "dropped"),
    [
        ([LMI_INPUTS], {"typical_p": 0.5, "nonsense": 1, "watermark": False}, False,
         ("typical_p", "nonsense")),
        ([VLLM_INPUTS], {"nonsense": 1, "early_stopping": "False"}, False, ("nonsense",)),
        ([of_json(nonsense="1", use_beam="x")], {"nonsense": "1"}, False, ("nonsense", "use_beam")),
        ([VLLM_INPUTS | {"beam_width": [1]}] * 2, {"nonsense": 1}, False, ("nonsense",)),
        ([VLLM_INPUTS | {"beam_width": [1]}] * 2, {"nonsense": 1}, True, ("nonsense",)),
    ],
)  # fmt: skip
def test_requests_may_have_what_nobody_knows_and_lmis_what_is_not_served(
    inputs: Any, parameters: dict[str, Any], dropped: tuple[str, ...], *, is_trtllm: bool
) -> None:
    parsed = read_request(inputs, parameters, Context(), is_trtllm=is_trtllm)
    assert parsed.dropped == dropped


@pytest.mark.parametrize("name", sorted({*FIELDS, *NEUTRAL}))
def test_null_is_absent(name: str) -> None:
    assert lmi(**{name: None}) == lmi()
    text = json.dumps({name: None})
    assert read({"text_input": ["p"], "sampling_parameters": [text]})[0] == vllm()


@pytest.mark.parametrize(
    ("inputs", "parameters", "message"),
    [
        ({}, {}, "prompt is missing; accepted: one of request, inputs, text_input"),
        ({"inputs": []}, {}, "prompt is missing"),
        (LMI_INPUTS | VLLM_INPUTS, {}, "inputs and text_input are both given; accepted: one of"),
        ({"inputs": [""]}, {}, "inputs is empty; accepted: a prompt"),
        ({"inputs": ["a", ""]}, {}, "inputs is empty; accepted: a prompt"),
        ({"text_input": ["a", "b"]}, {}, "text_input has 2 prompts; accepted: one prompt"),
        (
            VLLM_INPUTS | {"sampling_parameters": ["{"]},
            {},
            "sampling_parameters '{' is not JSON",
        ),
        (VLLM_INPUTS | {"sampling_parameters": ["1"]}, {}, "sampling_parameters '1' is not a"),
        (
            VLLM_INPUTS,
            {"max_new_tokens": 0},
            "max_new_tokens 0 is too small; accepted: a whole number, 1 or more",
        ),
        # There is no answer without a limit in LMI: its default is one that nobody requested.
        (LMI_INPUTS, {"n_predict": -1}, "n_predict -1 is too small; accepted: "),
        (VLLM_INPUTS, {"typical_p": 0.5}, "typical_p 0.5 is not served; accepted: 1"),
        (
            VLLM_INPUTS,
            {"max_tokens": 3, "max_new_tokens": 4},
            "max_new_tokens contradicts another name",
        ),
        (
            VLLM_INPUTS,
            {"max_tokens": 3, "min_tokens": 4},
            "min_tokens 4 is too large; accepted: at most",
        ),
        (VLLM_INPUTS, {"adapters": ["a", "b"]}, "adapters has 2 names; accepted: one name"),
        (
            VLLM_INPUTS,
            {"response_format": {"type": "xml"}},
            "response_format {'type': 'xml'} is not a format",
        ),
        (
            VLLM_INPUTS,
            {"guided_regex": "a", "guided_json": {}},
            "structured outputs are requested in two ways",
        ),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(
    inputs: dict[str, list[Any]], parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        read(inputs, **parameters)
    assert str(refusal.value).startswith(message)


def test_a_list_of_thousands_of_adapters_is_cut() -> None:
    context = Context(adapters=[f"a{n}" for n in range(10_000)], has_lora=True)
    with pytest.raises(QuotedError) as refusal:
        read_request([{"text_input": ["p"]}], {"lora_name": "b"}, context)
    assert len(str(refusal.value)) == 2000


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_refuses_what_it_cannot_be(name: str) -> None:
    field = FIELDS[name]
    wrong = 1.5 if field.kind in (OBJECT, OBJECT_OR_TEXT, TOKEN_WEIGHTS) else {"no": "such"}
    with pytest.raises(RequestError) as refusal:
        lmi(**{name: wrong})
    assert refusal.value.field == name
    assert f"; accepted: {field.kind.accepted}" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 2**63),
        ("seed", "1180591620717411303424"),
        ("seed", "x"),
        ("max_new_tokens", 2**64),
        ("temperature", 10**400),
        ("temperature", float("inf")),
        ("top_p", float("nan")),
        ("logit_bias", {"5": None}),
        ("logit_bias", {"a": 1}),
        ("stop", ["\ud800"]),
        ("stop_token_ids", [2**64]),
        ("allowed_token_ids", [True]),
        ("lora_name", "\udfff"),
        ("n", True),
    ],
)
def test_a_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        vllm(**{name: value})
    assert refusal.value.field == name
    assert "literal for int" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, json.dumps({"stop": "\ud800"}), '{"temperature": 1e999}', "{", "null"]
)
def test_json_text_is_refused_or_read_to_the_end(text: str) -> None:
    with pytest.raises(RequestError):
        read({"text_input": ["p"], "sampling_parameters": [text]})


@pytest.mark.parametrize(
    ("headers", "promise"),
    [
        ({}, (0, 0)),
        ({"x-llm-d-slo-ttft-ms": "500"}, (500, 0)),
        ({"x-llm-d-slo-ttft-ms": " 500 ", "x-llm-d-slo-tpot-ms": "40"}, (500, 40)),
    ],
)
def test_headers_say_how_soon_an_answer_is_needed(
    headers: dict[str, str], promise: tuple[int, int]
) -> None:
    assert promise_of(headers) == promise


@pytest.mark.parametrize("value", ["", "-5", "1.5", "soon", "9" * 12, "٣"])
def test_a_promise_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match=r"x-llm-d-slo-tpot-ms .*; accepted: milliseconds"):
        promise_of({"x-llm-d-slo-tpot-ms": value})
