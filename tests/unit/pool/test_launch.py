"""A worker that starts."""

from types import SimpleNamespace
from typing import Any

from lmi_backend.engine_config import EngineConfig
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.pool.launch import StartingWorker
from tests.support.run.waiting import HANG_SECONDS


def test_each_rank_is_heard_until_it_has_answered_once() -> None:
    polls: list[None] = []

    def is_cancelled() -> bool:
        polls.append(None)
        return len(polls) > 9

    def rank(*answers: Any) -> SimpleNamespace:
        return SimpleNamespace(read=iter(answers).__next__)

    process: Any = SimpleNamespace(wait=lambda _: None)
    plan: Any = SimpleNamespace(launch=SimpleNamespace(load_timeout=HANG_SECONDS))
    worker = StartingWorker(
        plan, "m/0", process, msg.Start("echo", EngineConfig(model="")), is_cancelled
    )
    first, second = (msg.Ready(Capabilities(name, "1", 9)) for name in ("a", "b"))
    # Rank 0 has no third answer: whoever reads it again fails.
    connections: Any = {0: rank([first]), 1: rank([], [second])}
    worker.connections = connections
    assert worker.wait_for_all(msg.Ready) == {0: first, 1: second}
