"""A client that calls things by names of a megabyte, or by names that write into the log."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.clients.openai_bodies import adapter_of, read_completion
from lmi_backend.clients.request import read_request, take_trace
from lmi_backend.engine_config import Context
from lmi_backend.errors import EngineError, HttpError, LmiError, RequestError
from lmi_backend.generation import GenerateRequest
from lmi_backend.names import HEADERS_BYTES, NAME_BYTES
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.stats import RequestStats
from tests.support.servers.serving import Served

LONG = "y" * 1_000_000
FORGED = "x\nERROR all is lost"
BAD = {
    "long": LONG,
    "newline": FORGED,
    "escape": "x\x1b[2J",
    "c1": "x\x85y",
    "separator": "x\u2028y",
    "null": "x\0",
}
FINE = {"id": "fine/1", "inputs": "a b", "parameters": {"max_new_tokens": 2}}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
names = pytest.mark.parametrize("name", BAD.values(), ids=BAD)


def _refusal(inputs: dict[str, Any], parameters: dict[str, Any] | None = None) -> LmiError:
    with pytest.raises(LmiError) as refusal:
        read_request(
            [{name: [value] for name, value in inputs.items()}], parameters or {}, Context()
        )
    assert len(str(refusal.value)) < 500
    assert str(refusal.value).isprintable()
    return refusal.value


@pytest.mark.parametrize(
    "road",
    [
        lambda name: {"id": name, "inputs": "a"},
        lambda name: {"id": name, "request": json.dumps({"inputs": "a"})},
        lambda name: {"id": name, "text_input": "a"},
        lambda name: {"inputs": "a", "parameters": {"lora_name": name}},
        lambda name: {"request": json.dumps({"inputs": "a", "adapters": name})},
        lambda name: {"request": json.dumps({"inputs": "a"}), "path": name},
        lambda name: {"request": json.dumps({"inputs": "a"}), "headers": json.dumps({"a": name})},
        lambda name: {"request": json.dumps({"requestType": "DESCRIBE_ADAPTER", "name": name})},
        lambda name: {"request": json.dumps({"requestType": name})},
    ],
    ids=["id lmi", "id body", "id vllm", "adapter", "body", "path", "headers", "describe", "type"],
)
def test_a_name_is_refused_and_not_logged(echo: Served, road: Any) -> None:
    for kind, name in BAD.items():
        before = echo.log_file.stat().st_size
        status, answer = echo.generate("echo", road(name))
        # Triton ends an id at a null.
        assert status == 200 if "\0" in name and "id" in road(name) else status >= 400, kind
        assert len(json.dumps(answer)) < 1500
        log = echo.log(before)
        assert len(log) < 2000
        assert "\nERROR" not in log
        assert echo.generate("echo", FINE)[0] == 200


def test_ordinary_names_are_taken(echo: Served) -> None:
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 2}}
    headers = {f"x-{number}": "v" * 400 for number in range(100)} | {"cookie": "c" * 8000}
    sent = {"id": "i" * NAME_BYTES, "request": json.dumps(body), "headers": json.dumps(headers)}
    status, _ = echo.generate("echo", sent)
    assert status == 200
    # The line is written after the answer.
    echo.logged("i" * 100)
    assert "i" * 300 not in echo.log()


@names
def test_an_adapter_in_a_header_is_refused(name: str) -> None:
    headers = json.dumps({"X-Amzn-SageMaker-Adapter-Identifier": name})
    body = json.dumps({"inputs": "a"})
    assert isinstance(_refusal({"request": body, "headers": headers}), HttpError)


@names
@pytest.mark.parametrize(
    "inputs",
    [
        lambda name: ({"inputs": "a"}, {"lora_name": name}),
        lambda name: ({"text_input": "a"}, {"lora_name": name}),
        lambda name: ({"text_input": "a", "lora_name": name, "stop_words": "x"}, {}),
        lambda name: (
            {"text_input": "a", "sampling_parameters": json.dumps({"lora_name": name})},
            {},
        ),
    ],
    ids=["lmi", "vllm", "trtllm", "sampling_parameters"],
)
def test_an_adapter_is_refused_in_every_dialect(inputs: Any, name: str) -> None:
    tensors, parameters = inputs(name)
    error = _refusal(tensors, parameters)
    assert isinstance(error, RequestError)
    assert error.field == "adapter"
    assert f"at most {NAME_BYTES} bytes" in str(error)


@pytest.mark.parametrize(
    "headers",
    [
        {"x": LONG},
        {LONG: "x"},
        {f"x-{number}": "" for number in range(10_000)},
        {"x": "a\r\nset-cookie: b"},
        {"x\r\ny": "a"},
        {"x": "\0"},
        {f"x-{number}": "v" * 1024 for number in range(1 + HEADERS_BYTES // 1024)},
    ],
    ids=["long", "long name", "many", "split", "split name", "null", "all"],
)
@pytest.mark.parametrize("path", ["", "/v1/chat/completions"])
def test_headers_that_no_server_takes_are_refused(headers: dict[str, str], path: str) -> None:
    body = json.dumps({"messages": []} if path else {"inputs": "a"})
    error = _refusal({"request": body, "path": path, "headers": json.dumps(headers)})
    assert isinstance(error, HttpError)


@names
def test_a_model_of_an_openai_body_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as refusal:
        adapter_of(read_completion({"prompt": "a", "model": name}), (), {})
    assert refusal.value.field == "model"
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("state", [LONG, "a=b\r\nx: y"], ids=["long", "split"])
def test_a_trace_that_cannot_travel_is_dropped(state: str) -> None:
    assert take_trace({"traceparent": PARENT, "tracestate": state}) == {"traceparent": PARENT}
    assert take_trace({"traceparent": f"{PARENT}-{state}"}) == {}


@names
def test_a_log_line_shows_a_part_of_an_id(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class Sink:
        request_id = name

    session = RequestState(1, Sink(), deadline=9e9, width=1, n=1)  # type: ignore[arg-type]
    session.error = EngineError(f"cannot read {name}")
    RequestStats("m").ended(session, "internal")
    (line,) = caplog.messages
    assert len(line) < 1000
    assert line.isprintable()


@names
def test_errors_quote_a_part(name: str) -> None:
    wrong = RequestError(f"is refused: {name}", field=name, value=name, accepted=name)
    assert len(str(wrong)) < 2500
    assert wrong.field.isprintable()
    assert str(RequestError(wrong.detail, field=wrong.field)) == str(wrong)
    assert len(str(EngineError(f"cannot read {name}"))) <= 2000


class _Service:
    def adapt(self, _order: Any) -> tuple[list[int], None]:
        return [0], None


class _Sink:
    request_id = ""

    def send(self, chunks: Any, *, is_last: bool) -> None:
        pass


def test_adapters_cannot_be_registered_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("lmi_backend.serving.lora._MOST", 50)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "adapter_config.json").write_text("{}")
    lora_manager = LoraManager(AdapterSet({}), _Service(), (str(tmp_path),), is_enabled=True)  # type: ignore[arg-type]
    register = {"requestType": "REGISTER_ADAPTER", "src": "a"}
    for number in range(50):
        lora_manager.handle(register | {"name": str(number)}, _Sink())
    with pytest.raises(RequestError, match="control character"):
        lora_manager.handle(register | {"name": FORGED}, _Sink())
    with pytest.raises(HttpError, match="unregister one first"):
        lora_manager.handle(register | {"name": "more"}, _Sink())
    assert len(lora_manager.adapters) == 50
    assert all(message.isprintable() for message in caplog.messages)
    look = {"requestType": "DESCRIBE_ADAPTER"}
    with pytest.raises(RequestError, match="too long"):
        lora_manager.handle(look | {"name": LONG}, _Sink())
    with pytest.raises(HttpError) as unknown:
        lora_manager.handle(look | {"name": LONG[:500]}, _Sink())
    assert "and 30 more" in str(unknown.value)
    assert len(str(unknown.value)) < 3000


@pytest.mark.parametrize("src", ["a/" * 500_000, "b" * 5000, "c" * 300], ids=len)
def test_a_folder_of_a_megabyte_is_refused(tmp_path: Path, src: str) -> None:
    lora_manager = LoraManager(AdapterSet({}), _Service(), (str(tmp_path),), is_enabled=True)  # type: ignore[arg-type]
    body = {"requestType": "REGISTER_ADAPTER", "name": "n", "src": src}
    with pytest.raises(HttpError) as refusal:
        lora_manager.handle(body, _Sink())
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("limit", [float("inf"), "9" * 100_000], ids=["infinite", "digits"])
def test_a_page_without_end_is_refused(tmp_path: Path, limit: Any) -> None:
    lora_manager = LoraManager(AdapterSet({}), _Service(), (str(tmp_path),), is_enabled=True)  # type: ignore[arg-type]
    with pytest.raises(HttpError, match="whole numbers"):
        lora_manager.handle({"requestType": "LIST_ADAPTERS", "limit": limit}, _Sink())


def test_many_prompts_may_share_an_adapter() -> None:
    rows = [{"inputs": ["a"] * 1000, "adapters": ["one"]}]
    work = read_request(rows, {}, Context()).work
    assert isinstance(work, tuple)
    assert {type(each) for each in work} == {GenerateRequest}
