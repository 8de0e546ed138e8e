"""Who manages adapters is asked in one place, and who does not sees no folders."""

import json
from typing import Any

import pytest

from lmi_backend.clients.lmi import lmi_failure
from lmi_backend.clients.spec import AdapterChange, ErrorResponse
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.frontend.lora_routes import change_of, check_bodies, load_of, manage, unload_of
from lmi_backend.frontend.reading import Reading
from lmi_backend.generation import HttpChunk


class Asked:
    """An exchange, a model and its connection."""

    def __init__(self, *, is_operator: bool) -> None:
        self.is_operator = is_operator
        self.spec = self.connection = self
        self.manage = dict[str, object]

    def failure(self, error: LmiError) -> ErrorResponse:
        return lmi_failure(error)

    def shown(self, answer: dict[str, Any]) -> Any:
        form = change_of(self, {}).form  # type: ignore[arg-type]
        data = json.dumps(answer).encode()
        parts = [HttpChunk(data[:20]), HttpChunk(data[20:], is_last=True)]
        return json.loads(b"".join(form.write([part]) for part in parts))


@pytest.mark.parametrize("kind", ["REGISTER_ADAPTER", "UPDATE_ADAPTER", "UNREGISTER_ADAPTER", 1])
def test_only_operators_change_adapters(kind: object) -> None:
    client, operator = Asked(is_operator=False), Asked(is_operator=True)
    order = {"requestType": kind}
    assert manage(operator, operator, order) == order  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(HttpError) as refusal:
        manage(client, client, order)  # type: ignore[arg-type]
    assert refusal.value.status == 403


def test_clients_see_names_and_no_folders() -> None:
    client, operator = Asked(is_operator=False), Asked(is_operator=True)
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


def test_vllms_path_asks_for_what_its_members_say() -> None:
    body = {"lora_name": "a", "lora_path": "/a"}
    asked: dict[str, Any] = {"requestType": "REGISTER_ADAPTER", "name": "a", "src": "/a"}
    assert load_of(body).work == AdapterChange(asked)
    # Whether it is true or false is for the model to read.
    for replaces in (True, False, "yes"):
        made = load_of(body | {"load_inplace": replaces}).work
        assert made == AdapterChange(asked | {"load_inplace": replaces})
    gone = {"requestType": "UNREGISTER_ADAPTER", "name": "a"}
    assert unload_of({"lora_name": "a"}).work == AdapterChange(gone)


@pytest.mark.parametrize("folder", ["a", "./a", "~/a", "org/name"])
def test_a_relative_folder_is_no_place_to_load_again_from(folder: str) -> None:
    body = {"lora_name": "a", "lora_path": folder}
    load_of(body)
    with pytest.raises(HttpError, match="accepted with load_inplace: an absolute path"):
        load_of(body | {"load_inplace": True})


@pytest.mark.parametrize(
    ("status", "shown"), [(400, 400), (404, 404), (409, 400), (424, 400), (503, 503)]
)
def test_its_errors_have_vllms_statuses_and_the_models_words(status: int, shown: int) -> None:
    for read in (load_of({"lora_name": "a", "lora_path": "a"}), unload_of({"lora_name": "a"})):
        assert read.failure is not None
        failure = read.failure(HttpError(status, "adapter a is not registered; known: none"))
        error = json.loads(failure.data)["error"]
        assert (failure.status, error["code"]) == (shown, shown)
        assert error["message"] == "adapter a is not registered; known: none"


class Models:
    """Models, one of which has an adapter."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def find(self, name: str) -> str | None:
        return {"mine": self._names[0]}.get(name, name if name in self._names else None)

    def all(self) -> list[str]:
        return list(self._names)

    async def of_body(self, _exchange: object, name: str) -> str:
        return name or self._names[0]


@pytest.mark.parametrize(
    ("names", "body", "model"),
    [
        (("m",), {"lora_name": "mine"}, "m"),
        (("m",), {"lora_name": "none"}, "m"),
        (("m", "n"), {"lora_name": "mine"}, "m"),
        (("m", "n"), {"lora_name": "none", "model": "n"}, "n"),
        (("m", "n"), {"lora_name": "none"}, ""),
    ],
)
async def test_an_adapter_that_is_not_there_is_no_unknown_model(
    names: tuple[str, ...], body: dict[str, str], model: str
) -> None:
    """Its model says that the adapter is unknown, and none does if it could be any."""
    read = Reading(Models(*names)).unload_adapter  # type: ignore[arg-type]
    data = json.dumps(body).encode()
    if model:
        assert (await read(None, None, data))[0] == model  # type: ignore[arg-type, comparison-overlap]
        return
    with pytest.raises(HttpError, match="no model has an adapter called 'none'") as refusal:
        await read(None, None, data)  # type: ignore[arg-type]
    assert refusal.value.status == 404
