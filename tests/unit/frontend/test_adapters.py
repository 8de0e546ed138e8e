"""Who manages adapters is asked in one place, and who does not sees no folders."""

import json
from pathlib import Path
from typing import Any

import pytest

import lmi_backend.frontend
from lmi_backend.clients.failure import ErrorResponse
from lmi_backend.clients.lmi.errors import lmi_failure
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.frontend.adapters import asked_of, check_bodies, manage
from lmi_backend.generation import HttpChunk


class Asked:
    """An exchange, a model and its connection."""

    def __init__(self, *, is_operator: bool) -> None:
        self.is_operator = is_operator
        self.connection = self.spec = self
        self.orders: list[dict[str, object]] = []

    def failure(self, error: LmiError) -> ErrorResponse:
        return lmi_failure(error)

    def manage(self, order: dict[str, object]) -> None:
        self.orders.append(order)

    def send(self, order: dict[str, object]) -> None:
        manage(self, self, order)  # type: ignore[arg-type]

    def shown(self, answer: dict[str, Any]) -> Any:
        form = asked_of(self, {}).form  # type: ignore[arg-type]
        data = json.dumps(answer).encode()
        parts = [HttpChunk(data[:20]), HttpChunk(data[20:], is_last=True)]
        return json.loads(b"".join(form.write([part]) for part in parts))


@pytest.mark.parametrize("kind", ["REGISTER_ADAPTER", "UPDATE_ADAPTER", "UNREGISTER_ADAPTER", 1])
def test_only_operators_change_adapters(kind: object) -> None:
    client, operator = Asked(is_operator=False), Asked(is_operator=True)
    operator.send({"requestType": kind})
    with pytest.raises(HttpError) as refusal:
        client.send({"requestType": kind})
    assert (refusal.value.status, client.orders) == (403, [])
    assert operator.orders == [{"requestType": kind}]


def test_clients_see_names_and_no_folders() -> None:
    client, operator = Asked(is_operator=False), Asked(is_operator=True)
    client.send({"requestType": "LIST_ADAPTERS"})
    client.send({"requestType": "DESCRIBE_ADAPTER", "name": "a"})
    one = {"name": "a", "src": "/models/adapters/a", "pin": False}
    many = {"adapters": [one], "nextPageToken": "1"}
    assert operator.shown(many) == many
    assert client.shown(one) == one | {"src": "a"}
    assert client.shown(many) == many | {"adapters": [one | {"src": "a"}]}


@pytest.mark.parametrize(
    "text",
    [
        '{"requestType": "LIST_ADAPTERS"}', '{"request\\u0054ype": null}',
        '{"inputs": "a", "\\u0072equestType": {}}', ' {"requestType": 1, "requestType": 2} ',
        '{"requestType": 1, "a": NaN}', '{"a": "\\ud800", "requestType": 1}',
        '{"requestType": "\ud800"}',
        '{"requestType": 1, "a": NaN, "b": "' + "y" * (1 << 18) + '"}',
    ],
)  # fmt: skip
def test_no_order_of_a_client_reaches_triton(text: str) -> None:
    check_bodies(Asked(is_operator=True), [text])  # type: ignore[arg-type]
    with pytest.raises(HttpError):
        check_bodies(Asked(is_operator=False), ["", text])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "a", "[]", '["requestType"]', '{"inputs": "requestType"}', "{", "[" * 100_000]
)
def test_other_bodies_do(text: str) -> None:
    check_bodies(Asked(is_operator=False), [text])  # type: ignore[arg-type]


def test_all_orders_go_through_one_place() -> None:
    (folder,) = lmi_backend.frontend.__path__
    sources = Path(folder).glob("*.py")
    senders = {each.name for each in sources if "connection.manage(" in each.read_text("utf-8")}
    assert senders == {"adapters.py"}
