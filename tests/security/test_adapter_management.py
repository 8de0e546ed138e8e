"""A client's key manages no adapters, on whatever road the order comes."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.answers.triton_bodies import LENGTH, binary, element, inference, tensor
from tests.support.harm.attackers import BOSS, CLIENT
from tests.support.servers.serving import Served

Sent = tuple[str, dict[str, str], Any]
"""A path, headers and a body."""
ORDERS: dict[str, dict[str, Any]] = {
    "register": {"requestType": "REGISTER_ADAPTER", "name": "mine", "src": "mine"},
    "pin": {"requestType": "REGISTER_ADAPTER", "name": "mine", "src": "mine", "pin": True},
    "pin ours": {"requestType": "UPDATE_ADAPTER", "name": "ours", "pin": True},
    "unregister": {"requestType": "UNREGISTER_ADAPTER", "name": "ours"},
    "unknown": {"requestType": "PIN_ADAPTER", "name": "ours"},
    "no text": {"requestType": ["UNREGISTER_ADAPTER"], "name": "ours"},
}
LIST = {"requestType": "LIST_ADAPTERS"}


def _escaped(order: dict[str, Any]) -> str:
    return json.dumps(order).replace("requestType", "request\\u0054ype")


def _binary(order: dict[str, Any]) -> Sent:
    tail = element(json.dumps(order).encode())
    return ("/v2/models/echo_infer/infer", *binary(len(tail), tail, name="request"))


def _infer(model: str, text: str, **more: Any) -> Sent:
    return f"/v2/models/{model}/infer", {}, inference(tensor("request", text, **more))


OWN: dict[str, Callable[[dict[str, Any]], Sent]] = {
    path: lambda order, path=path: (path, {}, order)  # type: ignore[misc]
    for path in (
        "/invocations", "/predictions/echo", "/models/echo/invoke", "/endpoints/echo/invocations",
        "/endpoints/echo/invocations-response-stream",
    )
}  # fmt: skip
"""Roads that the front end answers itself."""
TRITONS: dict[str, Callable[[dict[str, Any]], Sent]] = {
    **{
        f"{model}/{word}": lambda order, path=f"/v2/models/{model}/{word}": (  # type: ignore[misc]
            path, {}, {"request": json.dumps(order)},
        )
        for model in ("echo", "echo/versions/1", "echo_infer", "echo_raw")
        for word in ("generate", "generate_stream")
    },
    "among parameters": lambda order: (
        "/v2/models/echo/generate", {}, {"parameters": {"request": json.dumps(order)}},
    ),
    "a list": lambda order: ("/v2/models/echo/generate", {}, {"request": [json.dumps(order)]}),
    "escaped": lambda order: ("/v2/models/echo/generate", {}, {"request": _escaped(order)}),
    "beside a timeout": lambda order: (
        "/v2/models/echo/generate", {}, {"request": json.dumps(order), "timeout": 10_000_000},
    ),
    "infer": lambda order: _infer("echo_infer", json.dumps(order)),
    "infer, escaped": lambda order: _infer("echo_infer", _escaped(order)),
    "infer, nested": lambda order: _infer("echo_infer", "", data=[[json.dumps(order)]]),
    "infer, raw": lambda order: _infer("echo_raw", json.dumps(order)),
    "binary": _binary,
    "raw": lambda order: ("/v2/models/echo_raw/infer", {LENGTH: "0"}, order),
}  # fmt: skip
"""Roads on which a body may reach Triton."""
ROADS = OWN | TRITONS


@pytest.mark.parametrize("road", ROADS)
def test_a_client_manages_none_and_an_operator_is_answered_by_the_model(
    guarded: Served, road: str
) -> None:
    for name, order in ORDERS.items():
        path, headers, body = ROADS[road](order)
        status, _, answer = guarded.ask(path, body, CLIENT | headers)
        assert (status, b"operator's key" in answer) == (403, True), name
    path, headers, body = ROADS[road](ORDERS["unregister"])
    assert b"LoRA is not enabled" in guarded.ask(path, body, BOSS | headers)[2]


@pytest.mark.parametrize("road", ROADS)
def test_a_client_may_look_where_folders_are_left_out(guarded: Served, road: str) -> None:
    path, headers, body = ROADS[road](LIST)
    status, _, answer = guarded.ask(path, body, CLIENT | headers)
    assert b"LoRA is not enabled" in answer if road in OWN else status == 403
