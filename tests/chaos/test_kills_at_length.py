"""vLLM and its server killed again and again under greedy chats, and how long these pause.

LMI_BACKEND_TEST_KILLS says how often.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from tests.chaos.test_processes import STUB, below_worker, worker_of
from tests.support.answers.mixed_chats import MixedChats
from tests.support.records.measured import Report
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties

KILLS = int(os.environ.get("LMI_BACKEND_TEST_KILLS", "100"))
STREAMS = 32
ENDLESS = {"retry_threshold": 1_000_000}
"""Deaths that follow each other for half an hour are no reason to give up here."""


def _wait_for_spare(served: Served) -> None:
    wait_for(lambda: served.metric("lmi_worker_spare", "tiny") == 1, 180)


def _wait_for_server(served: Served) -> None:
    wait_for(lambda: served.ask("/ping")[0] == 200)


@pytest.mark.parametrize(
    ("what", "spares", "victims", "wait"),
    [
        ("vLLM's worker or its engine core, with a spare,", 1,
         (worker_of, below_worker("EngineCore")), _wait_for_spare),
        ("the stub of vLLM or tritonserver", 0,
         tuple(lambda served, name=name: served.named(name)[0] for name in (STUB, "tritonserver")),
         _wait_for_server),
    ],
)  # fmt: skip
def test_what_is_killed_again_and_again(  # noqa: PLR0917
    tmp_path: Path,
    chat_properties: dict[str, Any],
    report: Report,
    what: str,
    spares: int,
    victims: tuple[Callable[[Served], psutil.Process], ...],
    wait: Callable[[Served], None],
) -> None:
    chance, pauses = random.Random(0), []
    own = chat_properties | ENDLESS | {"option.spare_workers": spares}
    with serve([write_properties(tmp_path / "tiny", own)], tmp_path) as served:
        undisturbed = MixedChats(served, {"greedy": STREAMS}).answers()
        for _ in range(KILLS):
            wait(served)
            chats = MixedChats.running(served, {"greedy": STREAMS})
            chance.choice(victims)(served).kill()
            assert chats.answers() == undisturbed
            pauses.append(chats.pause)
    report.note_front(
        f"{what} is killed {KILLS} times, each time under {STREAMS} greedy streams",
        f"all have the same text. The longest pause was {max(pauses):.1f} s, the median of the "
        f"longest at each kill {median(pauses):.1f} s",
    )
