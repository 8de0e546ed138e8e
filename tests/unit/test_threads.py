"""Threads that outlive a fault, and when Python looks for garbage."""

import ast
import runpy
import weakref
from collections.abc import Iterator

import pytest

from lmi_backend import threads
from lmi_backend.threads import QueueThreads, guarded_thread
from tests.support.run.places import ROOT
from tests.support.run.waiting import HANG_SECONDS, wait_for


@pytest.mark.parametrize(("name", "calls"), [("__mp_main__", 1), ("lmi_backend.worker.main", 0)])
def test_processes_that_an_engine_spawns_expect_growth_too(
    monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(threads, "expect_growth", lambda: seen.append(1))
    runpy.run_module("lmi_backend.worker.main", run_name=name)
    assert len(seen) == calls


PACKAGE = ROOT / "lmi_backend"

# Threads that are made otherwise, and why they may end.
OTHERS = {
    "cli/greeting.py": "says once what is served, which nothing waits for",
    "engines/trtllm/engine.py": "the engine library's own loop: a rank that it leaves is dead",
    "engines/vllm/engine.py": "a rank whose core ends says so, and is started again",
    "engines/vllm/ranks.py": "an engine core that ends says so in the same way",
    "frontend/http/log.py": "guards each write; there is nowhere to say more",
    "machine.py": "its threads wait, and do nothing",
    "supervisor/health.py": "guards each look at the server",
    "threads.py": "makes the guarded ones",
}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)


def test_work_that_fails_is_logged_with_its_trace_and_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults: list[Exception] = [TypeError("a bug"), OSError("no disk")]

    def work() -> None:
        if faults:
            raise faults.pop()

    thread = guarded_thread("lmi-test", work)
    thread.start()
    thread.join(HANG_SECONDS)
    # It ends when its work returns.
    assert not thread.is_alive()
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    for words in ("thread lmi-test: an unexpected error", "TypeError: a bug", "OSError: no disk"):
        assert words in caplog.text


def test_one_item_of_a_queue_does_not_keep_the_next(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[int] = []

    def take(item: int) -> None:
        taken.append(10 // item)

    threads = QueueThreads(take, "lmi-a", "lmi-b")
    for item in (2, 0, 5):
        threads.put(item)
    threads.start()
    wait_for(lambda: sorted(taken) == [2, 5])
    wait_for(lambda: "ZeroDivisionError" in caplog.text)
    threads.stop()
    for thread in threads.threads:
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()


def test_a_thread_that_waits_holds_nothing() -> None:
    """An item may be a request of many megabytes, and the next one may take hours to come."""

    class Item:
        pass

    seen: list[weakref.ref[Item]] = []
    threads: QueueThreads[Item] = QueueThreads(lambda item: seen.append(weakref.ref(item)), "a")
    threads.start()
    threads.put(Item())
    wait_for(lambda: seen and seen[0]() is None)
    threads.stop()


MAKERS = {"Thread", "Timer", "start_new_thread"}


def _threads(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield where a thread is made in another way than by `guarded_thread`."""
    for node in ast.walk(tree):
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        called = [node.func] if isinstance(node, ast.Call) else []
        for name in map(ast.unparse, (*bases, *called)):
            if name.rpartition(".")[2] in MAKERS:
                yield node


def test_threads_are_guarded_or_have_a_reason() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if any(name in (text := path.read_text(encoding="utf-8")) for name in MAKERS)
        and any(_threads(ast.parse(text)))
    }
    assert found == OTHERS.keys()
