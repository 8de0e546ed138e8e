"""Large bodies of LMI's path mean what small ones mean."""

import json
from typing import Any

import pytest

from lmi_backend.clients.lmi import INVOCATIONS
from lmi_backend.clients.request import read_http_body
from lmi_backend.clients.spec import AdapterChange
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import HttpError
from lmi_backend.frontend.reading import parsed_in_turns
from lmi_backend.generation import HttpRequest

TEXT = 'Once "upon"\n é 漢 \\ ' * 20_000
HEADERS = {"x-tenant-id": "t"}
BODIES: dict[str, dict[str, Any]] = {
    "inputs": {"inputs": TEXT, "parameters": {"max_new_tokens": 5}},
    "many inputs": {"inputs": [TEXT, "a", TEXT], "parameters": {"stop": [TEXT[:20]]}},
    "a chat": {"messages": [{"role": "user", "content": TEXT}]},
    "a prompt": {"prompt": TEXT, "inputs": "a"},
    "an older chat": {"messages": [{"content": TEXT}], "top_logprobs": 2},
}


@pytest.mark.parametrize("dialect", ["legacy", "secure_async"])
@pytest.mark.parametrize("name", BODIES)
async def test_a_large_body_asks_what_a_reader_of_all_of_it_finds(name: str, dialect: Any) -> None:
    context = Context(ClientSettings(dialect=dialect))
    text = json.dumps(BODIES[name])
    read = await parsed_in_turns(text.encode(), HEADERS, context)
    assert read.work == read_http_body(text, INVOCATIONS, HEADERS, context).work
    assert read.tenant == "t"


async def test_a_body_that_the_engine_reads_is_passed_on_as_it_is() -> None:
    data = json.dumps(BODIES["a chat"]).encode()
    read = await parsed_in_turns(data, {}, Context())
    assert isinstance(read.work, HttpRequest)
    assert read.work.body is data


async def test_users_code_gets_its_large_body_whatever_that_is() -> None:
    custom = Context(is_custom=True)
    for data in (b"\xff" * 300_000, json.dumps({"x": TEXT, "y": "_ADAPTER"}).encode()):
        work = (await parsed_in_turns(data, {}, custom)).work
        assert isinstance(work, HttpRequest)
        assert (work.path, work.body) == (INVOCATIONS, data)
    order: dict[str, object] = {"requestType": "REGISTER_ADAPTER", "name": "a", "src": TEXT}
    read = await parsed_in_turns(json.dumps(order).encode(), {}, custom)
    assert read.work == AdapterChange(order)


@pytest.mark.parametrize("data", [b'{"a":"' + b"a" * 300_000, b" " * 300_000 + b"[]"])
async def test_what_is_no_object_fails_as_lmi_says_it(data: bytes) -> None:
    with pytest.raises(HttpError) as failed:
        await parsed_in_turns(data, {}, Context())
    assert failed.value.status == 424
    assert json.loads(str(failed.value))["code"] == 424
