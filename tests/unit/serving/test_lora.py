"""Managing LoRA adapters, with an engine that is told to be there."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import EngineError, HttpError, LmiError, RequestError, UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.request_state import FAULT
from tests.support.servers.harness import RecordingSink


class Engine:
    """Takes the place of the service: does what it is asked in each worker, or fails."""

    def __init__(self, error: LmiError | None = None, *refusing: int, workers: int = 1) -> None:
        self.asked: list[msg.SetAdapter] = []
        self.workers: list[dict[str, str]] = [{} for _ in range(workers)]
        """Of each worker: the folders of the adapters that it has."""
        self.error, self.refusing = error, refusing or range(workers)
        self.refusals: list[LmiError] = []

    def adapt(
        self, order: msg.SetAdapter, only: list[int] | None = None
    ) -> tuple[list[int], LmiError | None]:
        self.asked.append(order)
        took = []
        for index in range(len(self.workers)) if only is None else only:
            if self.error is not None and index in self.refusing:
                continue
            took.append(index)
            self.workers[index].pop(order.name, None)
            if order.folder:
                self.workers[index][order.name] = order.folder
        has_all = len(took) == len(self.workers if only is None else only)
        return took, None if has_all else self.error

    def refused(self, error: LmiError) -> None:
        self.refusals.append(error)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / "adapters" / name).mkdir(parents=True)
        (tmp_path / "adapters" / name / "adapter_config.json").write_text("{}")
    return tmp_path / "adapters"


def manager_of(root: Path | None = None, **settings: Any) -> LoraManager:
    """Return a manager of adapters; where there is a folder of them, it knows the first."""
    roots = () if root is None else (str(root),)
    adapters = AdapterSet({"one": f"{root}/one"} if root else {})
    service: Any = Engine()
    return LoraManager(adapters, service, roots, **{"is_enabled": True, **settings})


@pytest.fixture
def lora_manager(root: Path) -> LoraManager:
    return manager_of(root)


def ask(lora_manager: LoraManager, kind: str, engine: Engine | None = None, **body: Any) -> Any:
    sink = RecordingSink()
    lora_manager.service = engine or Engine()  # type: ignore[assignment]
    lora_manager.handle({"requestType": kind} | body, sink)
    if sink.error is not None:
        raise sink.error
    return sink.answer[1]


def test_an_adapter_is_registered_used_and_forgotten(lora_manager: LoraManager, root: Path) -> None:
    engine = Engine()
    answer = ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src="two", pin="true")
    assert answer == {"status": "Adapter b registered"}
    (order,) = engine.asked
    assert (order.folder, order.preload, order.pin) == (str(root / "two"), True, True)
    assert lora_manager.adapters["b"].digest == order.digest != ""
    assert list(lora_manager.adapters) == ["one", "b"]
    card = {"name": "b", "src": str(root / "two"), "preload": True, "pin": True}
    described = ask(lora_manager, "DESCRIBE_ADAPTER", name="b")
    assert described == card | {"has_custom_code": False}
    ask(lora_manager, "UNREGISTER_ADAPTER", engine, name="b")
    assert engine.workers == [{}]
    assert list(lora_manager.adapters) == ["one"]
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src=f"file://{root}/two")


def test_a_description_says_whether_there_is_code(root: Path) -> None:
    lora_manager = manager_of(root, runs_code=True)
    (root / "two" / "model.py").write_text("")
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")
    listed = ask(lora_manager, "LIST_ADAPTERS")["adapters"]
    assert [info["has_custom_code"] for info in listed] == [False, True]


def test_no_client_begins_to_run_code(lora_manager: LoraManager, root: Path) -> None:
    (root / "two" / "model.py").write_text("")
    with pytest.raises(HttpError, match=r"adapter b: its model.py would not be run") as raised:
        ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")
    assert raised.value.status == 424
    assert list(lora_manager.adapters) == ["one"]


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
        ("REGISTER_ADAPTER", {"name": "m", "src": "two"}, 400, "name m: is the model's own"),
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
    lora_manager.model_names = ("m",)
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(HttpError) as refusal:
        ask(lora_manager, kind, **body)
    assert refusal.value.status == status
    assert words in str(refusal.value)
    assert list(lora_manager.adapters) == ["one"]


def test_the_path_of_an_adapter_has_a_longest_length(lora_manager: LoraManager) -> None:
    longest = "two" + "/" * (4096 - 3)
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src=longest)
    with pytest.raises(HttpError, match="at most 4096"):
        ask(lora_manager, "REGISTER_ADAPTER", name="c", src=f"{longest}/")
    assert list(lora_manager.adapters) == ["one", "b"]


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
    assert list(lora_manager.adapters) == ["one"]
    # The name is free again.
    ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two")


def test_without_lora_nothing_is_managed() -> None:
    with pytest.raises(HttpError, match=r"option\.enable_lora"):
        ask(manager_of(is_enabled=False), "LIST_ADAPTERS")


def test_what_one_worker_refuses_none_has(lora_manager: LoraManager) -> None:
    """Also what was there before is there again."""
    refusing = Engine(RequestError("is broken", field="adapter"), 1, workers=3)
    with pytest.raises(HttpError, match="is broken"):
        ask(lora_manager, "REGISTER_ADAPTER", refusing, name="b", src="two")
    assert refusing.workers == [{}, {}, {}]
    refusing.error = None
    ask(lora_manager, "REGISTER_ADAPTER", refusing, name="b", src="two")
    changes: dict[str, dict[str, Any]] = {
        "UNREGISTER_ADAPTER": {}, "REGISTER_ADAPTER": {"src": "one", "load_inplace": True},
    }  # fmt: skip
    for kind, change in changes.items():
        before = [dict(each) for each in refusing.workers]
        refusing.error = RequestError("is broken", field="adapter")
        with pytest.raises(HttpError, match="is broken"):
            ask(lora_manager, kind, refusing, name="b", **change)
        assert refusing.workers == before
        assert lora_manager.adapters["b"].src == before[0]["b"]


def test_a_worker_that_cannot_undo_a_change_is_ended(lora_manager: LoraManager) -> None:
    ended: list[int] = []
    lora_manager.on_unequal = ended.append

    class Sticky(Engine):
        def adapt(
            self, order: msg.SetAdapter, only: list[int] | None = None
        ) -> tuple[list[int], LmiError | None]:
            if only is not None:
                self.refusing = only
            return super().adapt(order, only)

    with pytest.raises(HttpError):
        ask(
            lora_manager, "REGISTER_ADAPTER", Sticky(RequestError("x", field="a"), 1, workers=3),
            name="b", src="two",
        )  # fmt: skip
    assert sorted(ended) == [0, 2]


def test_a_loaded_adapter_is_loaded_again_in_place(lora_manager: LoraManager, root: Path) -> None:
    engine = Engine()
    for src, digests in (("two", 1), ("two", 1), ("one", 2)):
        ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src=src, load_inplace=True)
        assert engine.workers == [{"b": str(root / src)}]
        assert lora_manager.adapters["b"].src == str(root / src)
        assert len({order.digest for order in engine.asked}) == digests
    assert len(engine.asked) == 3
    with pytest.raises(HttpError, match="load_inplace 1: accepted: true or false"):
        ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two", load_inplace=1)
    with pytest.raises(HttpError, match="registered already"):
        ask(lora_manager, "REGISTER_ADAPTER", name="b", src="two", load_inplace=False)


def test_an_adapter_that_is_pinned_stays_so_when_it_is_loaded_in_place(
    lora_manager: LoraManager,
) -> None:
    engine = Engine()
    ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src="two", pin=True)
    ask(lora_manager, "REGISTER_ADAPTER", engine, name="b", src="one", load_inplace=True)
    assert engine.asked[-1].pin


def test_a_hundred_requests_wait_and_no_more() -> None:
    """Its thread is not started: `threads.step` does its work."""
    waits, sink = manager_of(), RecordingSink()
    for _ in range(100):
        waits.take({}, sink)
    with pytest.raises(UnavailableError):
        waits.take({}, sink)
    waits.threads.step()
    waits.take({}, sink)


@pytest.mark.parametrize(
    ("error", "text"), [(EngineError("wrong"), "wrong"), (ValueError("a secret"), FAULT)]
)
def test_a_failure_is_the_requests_and_a_defect_stays_in_the_log(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    made, sink = manager_of(), RecordingSink()
    monkeypatch.setattr(made, "handle", fail)
    made.take({}, sink)
    made.threads.step()
    assert made.service.refusals == [sink.error]  # type: ignore[attr-defined]
    assert str(sink.error) == text
