"""Where a request says whose it is."""

import json
from typing import Any

import pytest

from lmi_backend.clients.reply import ParsedRequest
from lmi_backend.clients.request import read_request
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.generation import HttpRequest

LMI_BODY = {"inputs": "p", "parameters": {"tenant": "of the body"}}
CHAT_BODY = {"messages": [], "tenant": "is not looked for there"}


def read(
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
    assert read(inputs, tenant="a").tenant == "a"


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
    assert read(inputs).tenant == tenant


def test_the_engine_is_not_told() -> None:
    for inputs in ({"inputs": ["p"]}, {"text_input": ["p"]}, {"input_ids": [1]}):
        assert read(inputs, tenant="secret").work == read(inputs).work
        assert not read(inputs, tenant="secret").dropped


def test_the_users_own_code_still_sees_what_it_was_sent() -> None:
    taken = read({"inputs": ["p"]}, is_custom=True, tenant="a")
    assert taken.tenant == "a"
    assert isinstance(taken.work, HttpRequest)
    assert json.loads(taken.work.body)["parameters"] == {"tenant": "a"}


@pytest.mark.parametrize("tenant", [7, ["a"], {}, "\ud800"])
def test_a_tenant_is_a_string(tenant: Any) -> None:
    with pytest.raises(LmiError, match=r"tenant .*accepted: a string"):
        read({"embedding_request": ['{"input": "p"}']}, tenant=tenant)
    with pytest.raises(HttpError, match="tenant"):
        read(whole({"inputs": "p", "parameters": {"tenant": tenant}}))


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
    parsed = read(whole({"inputs": "a", "parameters": parameters} | outside))
    assert isinstance(parsed.work, tuple)
    assert (parsed.work[0].sampling.max_tokens, parsed.dropped) == (tokens, dropped)


def test_a_constraint_outside_of_the_parameters_holds() -> None:
    body = {"inputs": "a", "grammar": {"type": "regex", "value": "[0-9]"}}
    parsed = read(whole(body))
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
