"""What requests of all clients ask for: answers, a tenant, a trace."""

import json
from typing import Any

import pytest

from lmi_backend.clients.parameters import CONTROLS, FIELDS, IGNORED, NEUTRAL
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
from lmi_backend.generation import GenerateRequest, HttpRequest, Sampling

# The example of the standard.
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"traceparent": PARENT, "tracestate": "vendor=value"}


def test_the_headers_are_taken_out_of_the_parameters() -> None:
    parameters: dict[str, Any] = {"max_tokens": 3} | TRACE
    assert take_trace(parameters) == TRACE
    assert parameters == {"max_tokens": 3}


@pytest.mark.parametrize("parent", ["", "00-short", PARENT.upper(), 7, None])
def test_a_broken_parent_is_dropped_with_its_state(parent: Any) -> None:
    parameters = TRACE | {"traceparent": parent}
    assert take_trace(parameters) == {}
    assert not parameters


def test_every_prompt_of_a_request_belongs_to_the_trace() -> None:
    work = with_trace((GenerateRequest("a"), GenerateRequest("b")), TRACE)
    assert isinstance(work, tuple)
    assert [request.trace_headers for request in work] == [TRACE, TRACE]


def test_a_call_carries_it_as_a_server_would() -> None:
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
    "inputs",
    [
        {"inputs": ["p"]},
        {"text_input": ["p"]},
        {"text_input": ["p"], "bad_words": [""]},
        {"input_ids": [1, 2]},
        {"embedding_request": ['{"input": "p"}']},
        whole(LMI_BODY, x_tenant_id="of the header"),
        whole(CHAT_BODY),
    ],
    ids=" ".join,
)
def test_a_request_parameter_of_triton_says_it_to_every_client(
    inputs: dict[str, list[Any]],
) -> None:
    assert read_whole(inputs, tenant="a").tenant == "a"


@pytest.mark.parametrize(
    ("inputs", "tenant"),
    [
        (whole(LMI_BODY), "of the body"),
        (whole(LMI_BODY, X_Tenant_Id="of the header"), "of the header"),
        (whole(CHAT_BODY, x_tenant_id="b"), "b"),
        (whole(CHAT_BODY, x_tenant_id="b", x_gateway_inference_fairness_id="c"), "c"),
        (whole(CHAT_BODY), ""),
        ({"inputs": ["p"]}, ""),
        ({"text_input": ["p"], "sampling_parameters": ['{"tenant": "d"}']}, "d"),
    ],
)
def test_whose_word_counts(inputs: dict[str, list[Any]], tenant: str) -> None:
    assert read_whole(inputs).tenant == tenant


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


def test_a_constraint_outside_of_the_parameters_holds() -> None:
    body = {"inputs": "a", "grammar": {"type": "regex", "value": "[0-9]"}}
    parsed = read_whole(whole(body))
    assert isinstance(parsed.work, tuple)
    assert parsed.work[0].sampling.extra == {"structured_outputs": {"regex": "[0-9]"}}


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


def test_an_lmi_body_has_lmis_defaults() -> None:
    request = lmi()
    assert (request.prompt, request.stream) == ("p", False)
    assert request.sampling.max_tokens == 30


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


def test_a_vllm_body_has_the_defaults_of_its_sampling_params() -> None:
    sampling = read({"text_input": ["p"]})[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k) == (16, 1.0, 0)


def test_lists_come_as_tensors_or_values() -> None:
    inputs = {"inputs": ["p"], "stop": ["a", ""], "stop_token_ids": [1, 2], "bad_words": []}
    sampling = read(inputs)[0].sampling
    assert (sampling.stop, sampling.stop_token_ids, sampling.bad_words) == (("a",), (1, 2), ())


def test_sampling_parameters_are_json_whose_numbers_may_be_text() -> None:
    text = json.dumps(
        {"max_tokens": "7", "temperature": "0", "ignore_eos": "True", "logit_bias": {"5": 1}}
    )
    sampling = read({"text_input": ["p"], "sampling_parameters": [text]})[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.ignore_eos) == (7, 0.0, True)
    assert sampling.extra == {"logit_bias": {5: 1.0}}


def test_names_of_triton_are_no_parameters() -> None:
    assert lmi(**dict.fromkeys(IGNORED, 1), triton_x=1) == lmi()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"max_new_tokens": 0},
            "max_new_tokens 0 is too small; accepted: a whole number, 1 or more",
        ),
        ({"beam_width": 2}, "beam_width 2 is not served; accepted: 1"),
        ({"max_tokens": 3, "max_new_tokens": 4}, "max_new_tokens contradicts another name"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens 4 is too large; accepted: at most"),
        ({"adapters": ["a", "b"]}, "adapters has 2 names; accepted: one name"),
        ({"response_format": {"type": "xml"}}, "response_format {'type': 'xml'} is not a format"),
        ({"guided_regex": "a", "guided_json": {}}, "structured outputs are requested in two ways"),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as refusal:
        vllm(**parameters)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("parameters", "structures"),
    [
        ({"regex": "[0-9]+"}, {"regex": "[0-9]+"}),
        ({"ebnf": "root ::= 'a'"}, {"grammar": "root ::= 'a'"}),
        ({"json_schema": {"type": "object"}}, {"json": {"type": "object"}}),
        (
            {"json_schema": {"name": "x", "schema": {"type": "object"}}},
            {"json": {"type": "object"}},
        ),
    ],
)
def test_a_constraint_by_another_servers_name_holds(
    parameters: dict[str, Any], structures: dict[str, Any]
) -> None:
    for request in (lmi(**parameters), vllm(**parameters)):
        assert request.sampling.extra == {"structured_outputs": structures}


def test_requests_may_have_what_nobody_knows_and_lmis_what_is_not_served() -> None:
    parameters = {"typical_p": 0.5, "nonsense": 1, "watermark": False, "early_stopping": "False"}
    read = read_request([{"inputs": ["p"]}], parameters, Context())
    assert read.dropped == ("typical_p", "nonsense")
    with pytest.raises(RequestError, match=r"typical_p 0\.5 is not served; accepted: 1"):
        read_request([{"text_input": ["p"]}], parameters, Context())
    del parameters["typical_p"]
    assert read_request([{"text_input": ["p"]}], parameters, Context()).dropped == ("nonsense",)


def test_sampling_parameters_may_have_what_nobody_knows() -> None:
    inputs = {"text_input": ["p"], "sampling_parameters": ['{"nonsense": "1", "use_beam": "x"}']}
    parsed = read_request([inputs], {"nonsense": "1"}, Context())
    assert parsed.dropped == ("nonsense", "use_beam")


@pytest.mark.parametrize("is_trtllm", [False, True])
def test_a_client_of_the_tensorrtllm_backend_may_send_what_nobody_knows(is_trtllm: bool) -> None:
    row = {"text_input": ["p"], "beam_width": [1]}
    named = {"nonsense": 1, "max_tokens": 3}
    parsed = read_request([row, row], named, Context(), is_trtllm=is_trtllm)
    assert parsed.dropped == ("nonsense",)


@pytest.mark.parametrize(
    "inputs",
    [{"inputs": ["p"]}, {"text_input": ["p"]}, {"text_input": ["p"], "bad_words": [""]}],
)
def test_openais_limit_counts_beside_another(inputs: dict[str, list[Any]]) -> None:
    """LiteLLM's `triton/` sends its own max_tokens with each request."""
    sampling = read(inputs, max_tokens=2000, max_completion_tokens=4)[0].sampling
    assert sampling.max_tokens == 4
    sampling = read(inputs, max_completion_tokens=None, max_tokens=5)[0].sampling
    assert sampling.max_tokens == 5


@pytest.mark.parametrize("name", sorted({*FIELDS, *NEUTRAL}))
def test_null_is_absent(name: str) -> None:
    assert lmi(**{name: None}) == lmi()
    text = json.dumps({name: None})
    assert read({"text_input": ["p"], "sampling_parameters": [text]})[0] == vllm()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "prompt is missing; accepted: one of request, inputs, text_input"),
        ({"inputs": []}, "prompt is missing"),
        (
            {"inputs": ["a"], "text_input": ["b"]},
            "inputs and text_input are both given; accepted: one of",
        ),
        ({"inputs": [""]}, "inputs is empty; accepted: a prompt"),
        ({"inputs": ["a", ""]}, "inputs is empty; accepted: a prompt"),
        ({"text_input": ["a", "b"]}, "text_input has 2 prompts; accepted: one prompt"),
        (
            {"text_input": ["a"], "sampling_parameters": ["{"]},
            "sampling_parameters '{' is not JSON",
        ),
        ({"text_input": ["a"], "sampling_parameters": ["1"]}, "sampling_parameters '1' is not a"),
    ],
)
def test_bodies_that_are_refused(inputs: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        read(inputs)
    assert str(refusal.value).startswith(message)


LORAS = Context(adapters=("doll", "sheep"), has_lora=True)


@pytest.mark.parametrize(
    ("inputs", "context", "message"),
    [
        (
            {"stream": [True], "exclude_input_in_output": [False]},
            Context(),
            "Error generating stream: When streaming, `exclude_input_in_output` = False is not "
            "allowed.",
        ),
        (
            {"sampling_parameters": ['{"lora_name": "bavarian"}']},
            LORAS,
            "LoRA bavarian is not supported, we currently support ['doll', 'sheep']",
        ),
        (
            {"sampling_parameters": ['{"lora_name": "doll"}']},
            Context(),
            "LoRA feature is not enabled.",
        ),
    ],
)
def test_texts_that_clients_of_the_vllm_backend_compare(
    inputs: dict[str, list[Any]], context: Context, message: str
) -> None:
    with pytest.raises(QuotedError) as refusal:
        read_request([{"text_input": ["p"], **inputs}], {}, context)
    assert (str(refusal.value), refusal.value.code) == (message, "INVALID_ARG")


def test_a_known_adapter_of_a_vllm_body_is_taken() -> None:
    parsed = read_request([{"text_input": ["p"]}], {"lora_name": "doll"}, LORAS)
    assert isinstance(parsed.work, tuple)
    assert parsed.work[0].adapter == "doll"


def test_a_list_of_thousands_of_adapters_is_cut() -> None:
    context = Context(adapters=[f"a{n}" for n in range(10_000)], has_lora=True)
    with pytest.raises(QuotedError) as refusal:
        read_request([{"text_input": ["p"]}], {"lora_name": "b"}, context)
    assert len(str(refusal.value)) == 2000


def test_a_stream_is_asked_by_input_or_parameter() -> None:
    assert read({"inputs": ["p"], "stream": [True]})[0].stream
    assert read({"inputs": ["p"]}, stream=True)[0].stream


def test_the_same_in_the_tensor_and_as_text_beside_it() -> None:
    """What the backend's own client sends with each request."""
    parameters = {"temperature": "0.1", "top_p": "0.95", "max_tokens": "100"}
    inputs = {"text_input": ["p"], "sampling_parameters": [json.dumps(parameters)]}
    sampling = read(inputs, **parameters)[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.1, 0.95, 100)
    assert vllm(**parameters).sampling == sampling


def test_what_the_tensor_says_is_not_read_elsewhere() -> None:
    inputs = {"text_input": ["p"], "sampling_parameters": ['{"max_tokens": 6}']}
    assert read(inputs, max_new_tokens="many", max_tokens=-1)[0].sampling.max_tokens == 6


def test_a_weight_is_cut_to_what_engines_take() -> None:
    weights = {"5": 1e300, "6": -101, "7": 3}
    assert lmi(logit_bias=weights).sampling.extra == {"logit_bias": {5: 100, 6: -100, 7: 3}}


def test_a_text_stays_the_text_it_is() -> None:
    assert vllm(guided_regex='"a"').sampling.extra == {"structured_outputs": {"regex": '"a"'}}


def test_a_seed_may_be_text_and_a_priority_is_not_sampling() -> None:
    request = lmi(seed="5", priority=-1)
    assert (request.sampling.seed, request.priority) == (5, -1)
    assert request.sampling.extra == {}


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_refuses_what_it_cannot_be(name: str) -> None:
    field = FIELDS[name]
    wrong = 1.5 if field.kind in (OBJECT, OBJECT_OR_TEXT, TOKEN_WEIGHTS) else {"no": "such"}
    with pytest.raises(RequestError) as refusal:
        lmi(**{name: wrong})
    assert refusal.value.field == name
    assert f"; accepted: {field.kind.accepted}" in str(refusal.value)


@pytest.mark.parametrize("name", FIELDS)
def test_every_parameter_sets_what_exists(name: str) -> None:
    target = FIELDS[name].target
    known = {*CONTROLS, *Sampling.__struct_fields__} - {"extra"}
    assert target in known or target.startswith(("extra.", "structure."))


def test_names_are_served_or_neutral_or_ignored_but_not_two_of_them() -> None:
    assert not FIELDS.keys() & NEUTRAL.keys()
    assert not (FIELDS.keys() | NEUTRAL.keys()) & IGNORED


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


def test_an_adapter_has_both_clients_names() -> None:
    inputs: dict[str, list[Any]] = {"inputs": ["p"]}
    for named, more in (({"adapters": ["a"]}, {}), ({}, {"lora_name": "a"})):
        assert read(inputs | named, **more)[0].adapter == "a"
    assert read(inputs | {"adapters": ["a"]}, lora_name="a")[0].adapter == "a"


def test_do_sample_false_is_greedy_in_a_vllm_body_too() -> None:
    assert vllm(do_sample=False).sampling.temperature == 0.0


@pytest.mark.parametrize("name", ["n_predict", "num_predict"])
def test_another_servers_limit_is_a_limit(name: str) -> None:
    assert lmi(**{name: 3}).sampling.max_tokens == 3
    # There is no answer without a limit in LMI: its default would be one that nobody requested.
    with pytest.raises(RequestError, match="accepted: ") as refusal:
        lmi(**{name: -1})
    assert refusal.value.field == name


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
