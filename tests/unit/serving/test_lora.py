"""Managing LoRA adapters, with an engine that is told to be there."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import HttpError, LmiError, RequestError
from lmi_backend.generation import Chunk, HttpChunk
from lmi_backend.serving.lora import LoraManager

TYPES = {400: "BadRequestException", 404: "AdapterNotFoundException", 409: "ConflictException"}


class Sink:
    request_id = ""

    def __init__(self) -> None:
        self.body: Any = None
        self.error: LmiError | None = None

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        (chunk,) = chunks
        assert isinstance(chunk, HttpChunk)
        self.body = json.loads(chunk.data)

    def fail(self, error: LmiError) -> None:
        self.error = error

    def is_cancelled(self) -> bool:
        return False


class Engine:
    """Takes the place of the service: does what it is asked, or fails."""

    def __init__(self, error: LmiError | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error = error

    def adapt(self, name: str, folder: str, sink: Any, *, preload: bool, pin: bool) -> None:
        self.asked.append((name, folder, preload, pin))
        if self.error is not None:
            sink.fail(self.error)
        else:
            sink.send([HttpChunk(is_last=True)], is_last=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
    return tmp_path / "adapters"


@pytest.fixture
def lora_manager(root: Path) -> LoraManager:
    return LoraManager({"one": str(root / "one")}, (str(root),), is_enabled=True)


def ask(lora_manager: LoraManager, kind: str, engine: Engine | None = None, **body: Any) -> Any:
    sink = Sink()
    lora_manager.handle({"requestType": kind} | body, engine or Engine(), sink)  # type: ignore[arg-type]
    if sink.error is not None:
        raise sink.error
    return sink.body


def test_an_adapter_is_registered_used_and_forgotten(lora_manager: LoraManager, root: Path) -> None:
    engine = Engine()
    answer = ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src="two", pin="true")
    assert answer == {"status": "Adapter b registered"}
    assert engine.asked == [("b", str(root / "two"), True, True)]
    assert list(lora_manager.folders) == ["one", "b"]
    card = {"name": "b", "src": str(root / "two"), "preload": True, "pin": True}
    described = ask(lora_manager, "DESCRIBE_ADAPTER", name="b")
    assert described == card | {"has_custom_code": False}
    ask(lora_manager, "UNREGISTER_ADAPTER", engine, name="b")
    assert engine.asked[-1][:2] == ("b", "")
    assert list(lora_manager.folders) == ["one"]
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src=f"file://{root}/two")


def test_a_description_says_whether_there_is_code(root: Path) -> None:
    lora_manager = LoraManager(
        {"one": str(root / "one")}, (str(root),), is_enabled=True, runs_code=True
    )
    (root / "two" / "model.py").write_text("")
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")
    listed = ask(lora_manager, "LIST_ADAPTERS")["adapters"]
    assert [info["has_custom_code"] for info in listed] == [False, True]


def test_no_client_begins_to_run_code(lora_manager: LoraManager, root: Path) -> None:
    (root / "two" / "model.py").write_text("")
    with pytest.raises(HttpError, match=r"adapter b: its model.py would not be run") as raised:
        ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")
    assert raised.value.status == 424
    assert list(lora_manager.folders) == ["one"]


def test_a_list_comes_in_pages(lora_manager: LoraManager) -> None:
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")
    page = ask(lora_manager, "LIST_ADAPTERS", limit=1)
    assert ([card["name"] for card in page["adapters"]], page["nextPageToken"]) == (["one"], "1")
    page = ask(lora_manager, "LIST_ADAPTERS", limit=1, next_page_token=page["nextPageToken"])
    assert [card["name"] for card in page["adapters"]] == ["b"]
    assert "nextPageToken" not in page


@pytest.mark.parametrize(
    ("kind", "body", "status", "words"),
    [
        ("REGISTER_ADAPTER", {"name": "one", "src": "two"}, 409, "registered already"),
        ("REGISTER_ADAPTER", {"src": "two"}, 400, "name is missing"),
        ("REGISTER_ADAPTER", {"name": "b"}, 400, "src is missing"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "/etc"}, 400, "option.adapter_roots"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "../.."}, 400, "option.adapter_roots"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "s3://x/y"}, 400, "a folder of this machine"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "x\0y"}, 400, "src x\\x00y: accepted: text"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "\ud800"}, 400, "src \\ud800: accepted: text"),
        ("REGISTER_ADAPTER", {"name": "b", "src": ["two"]}, 400, "accepted: text"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "loop/x"}, 400, "accepted: a folder"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "three"}, 424, "no adapter_config.json"),
        ("REGISTER_ADAPTER", {"name": "b", "src": "two", "pin": 3}, 400, "pin 3"),
        (
            "REGISTER_ADAPTER",
            {"name": "b", "src": "two", "preload": False, "pin": True},
            424,
            "needs preload",
        ),
        ("UPDATE_ADAPTER", {"name": "one", "src": "two"}, 424, "src cannot change"),
        ("UPDATE_ADAPTER", {"name": "x"}, 404, "not registered; known: one"),
        ("UNREGISTER_ADAPTER", {"name": "x"}, 404, "not registered; known: one"),
        ("DESCRIBE_ADAPTER", {"name": "x"}, 404, "not registered"),
        ("LIST_ADAPTERS", {"limit": 0}, 400, "at least 1"),
        ("LIST_ADAPTERS", {"limit": "x"}, 400, "whole numbers"),
        ("NEW_SESSION", {}, 424, "accepted: LIST_ADAPTERS"),
    ],
)
def test_what_is_wrong_has_lmis_status(
    lora_manager: LoraManager, root: Path, kind: str, body: dict[str, Any], status: int, words: str
) -> None:
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(HttpError) as refusal:
        ask(lora_manager, kind, **body)
    assert refusal.value.status == status
    error = json.loads(str(refusal.value))
    assert error["code"] == status
    assert error["type"] == TYPES.get(status, "ModelException")
    assert words in error["message"]
    assert list(lora_manager.folders) == ["one"]


def test_the_path_of_an_adapter_has_a_longest_length(lora_manager: LoraManager) -> None:
    longest = "two" + "/" * (4096 - 3)
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src=longest)
    with pytest.raises(HttpError, match="at most 4096"):
        ask(lora_manager, "REGISTER_ADAPTER", name="c", src=f"{longest}/")
    assert list(lora_manager.folders) == ["one", "b"]


def test_a_link_does_not_lead_out(lora_manager: LoraManager, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "adapter_config.json").write_text("{}")
    (root / "link").symlink_to(outside)
    with pytest.raises(HttpError, match="accepted: a folder in"):
        ask(lora_manager, "REGISTER_ADAPTER", name="b", src="link")


def test_what_the_engine_cannot_load_is_not_registered(lora_manager: LoraManager) -> None:
    engine = Engine(RequestError("is broken", field="adapter"))
    with pytest.raises(HttpError) as refusal:
        ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src="two")
    assert refusal.value.status == 424
    assert list(lora_manager.folders) == ["one"]
    # The name is free again.
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")


def test_without_lora_nothing_is_managed() -> None:
    lora_manager = LoraManager({}, (), is_enabled=False)
    with pytest.raises(HttpError, match=r"option\.enable_lora"):
        ask(lora_manager, "LIST_ADAPTERS")
