"""Two servers with vLLM behind routers: prefixes in caches, and adapters on one of them.

Low load: both engines share the cores with all else. `make fleet` runs it.
"""

import contextlib
import http.client
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.doubles.endpoint_picker import Picker, picking_router
from tests.support.records.measured import FleetReport
from tests.support.run.places import ENGINE_PYTHON, LORA, TINY
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.pods import MODEL, Pod
from tests.support.servers.routers import ROUTERS, SESSION, Router
from tests.support.servers.serving import answer_of

PROPERTIES: dict[str, Any] = {
    "option.rolling_batch": "vllm",
    "option.model_id": TINY / "llama",
    "option.pythonExecutable": ENGINE_PYTHON,
    "option.dtype": "fp32",
    "option.max_model_len": 2048,
    "option.max_rolling_batch_size": 8,
    "option.enforce_eager": "true",
    "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
    "option.enable_lora": "true",
    "option.max_lora_rank": 8,
}
ADAPTER = "wrong"
_SESSIONS = 8
_TURNS = 4
_PREFIX_WORDS = 200
_PUBLISHED_SECONDS = 2.5
"""After which the counts of a request are in a server's metrics."""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pod]]:
    """Two, the second of which has a LoRA adapter."""
    folder = tmp_path_factory.mktemp("engines")
    made = [Pod(folder / f"pod-{number}", PROPERTIES) for number in range(2)]
    adapters = folder / "pod-1" / MODEL / "adapters"
    adapters.mkdir()
    (adapters / ADAPTER).symlink_to(LORA)
    with contextlib.ExitStack() as stack:
        for each in made:
            stack.callback(each.stop)
            each.start()
        yield made


@pytest.mark.parametrize(
    "sticky",
    [each for each in ROUTERS if each.is_sticky],
    ids=[each.name for each in ROUTERS if each.is_sticky],
)
def test_sticky_sessions_find_their_prefixes(
    sticky: Router, engines: list[Pod], tmp_path: Path, fleet_report: FleetReport
) -> None:
    sticky.environment()
    ports = [each.port for each in engines]
    shares = []
    for is_sticky in (False, True):
        with sticky.running(tmp_path / str(is_sticky), ports, is_sticky=is_sticky) as running:
            # The router's own first question is over.
            time.sleep(_PUBLISHED_SECONDS)
            before = _looked_up(engines)
            _talk(running.url)
            time.sleep(_PUBLISHED_SECONDS)
            cached, asked = (
                now - then for now, then in zip(_looked_up(engines), before, strict=True)
            )
        shares.append(cached / asked)
    spread, kept = shares
    name = f"{sticky.name} {sticky.version()}"
    fleet_report.prefixes.append((name, f"{spread:.0%}", f"{kept:.0%}"))
    assert kept > spread


def _talk(url: str) -> None:
    """Let sessions ask in turn, each with words of its own before what is new."""
    chance = random.Random()
    begun = [
        " ".join(str(chance.randrange(1000)) for _ in range(_PREFIX_WORDS))
        for _ in range(_SESSIONS)
    ]
    turns = [(turn, session) for turn in range(_TURNS) for session in range(_SESSIONS)]
    # In a fixed order a router that takes turns would keep each session by chance.
    chance.shuffle(turns)
    for turn, session in turns:
        body = {"model": MODEL, "prompt": f"{begun[session]} {turn}", "max_tokens": 2}
        assert _post(url, body, {SESSION: f"session-{session}"}) == 200


def _looked_up(servers: list[Pod]) -> tuple[float, float]:
    """Return how many prompt tokens were found in caches, and looked up, since the start."""
    texts = [each.served.ask("/metrics")[2].decode() for each in servers]
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    hits, queries = (
        sum(
            float(value)
            for text in texts
            for value in re.findall(rf"^{name}\S* (\S+)$", text, re.MULTILINE)
        )
        for name in names
    )
    return hits, queries


def test_an_adapter_in_use_on_one_server_is_asked_for_there(
    engines: list[Pod], tmp_path: Path, fleet_report: FleetReport
) -> None:
    without, having = engines
    picker = Picker([each.port for each in engines])
    asked = 8
    with picker.serving() as port:
        wait_for(lambda: len(picker.seen) == len(engines))
        router = picking_router(port)
        with router.running(tmp_path, [each.port for each in engines]) as running:
            with _streaming(having):
                wait_for(lambda: ADAPTER in picker.seen[having.port].running_adapters)
                statuses = [_adapted(running.url, f"used-{number}") for number in range(asked)]
            assert statuses == [200] * asked
            wait_for(lambda: sum("used-" in each for each in having.answered()) == asked)
            assert not any("used-" in each for each in without.answered())
    # Who has not the adapter says so.
    assert _adapted(f"http://{without.served.front_end}", "absent") == 404
    fleet_report.notes.append(
        f"**A LoRA adapter that one of two servers has**: while that server uses it, the picker "
        f"sends all requests for it there ({asked} of {asked}). The picker knows only adapters in "
        "use. So put each adapter on each server: one without it answers 404."
    )


def _adapted(url: str, request_id: str) -> int:
    body = {"model": ADAPTER, "prompt": "The capital of France is", "max_tokens": 2}
    return _post(url, body, {"x-request-id": request_id})


@contextlib.contextmanager
def _streaming(server: Pod) -> Iterator[None]:
    """Let the adapter answer at length."""
    body = {"model": ADAPTER, "prompt": "The", "max_tokens": 2000, "ignore_eos": True}
    client = http.client.HTTPConnection(server.served.front_end, timeout=HANG_SECONDS)
    with contextlib.closing(client):
        kind = {"content-type": "application/json"}
        client.request("POST", "/v1/completions", json.dumps(body | {"stream": True}), kind)
        response = client.getresponse()
        assert response.status == 200
        assert response.readline()
        yield
        response.close()


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> int:
    kind = {"content-type": "application/json"}
    return answer_of(url.removeprefix("http://"), "/v1/completions", body, kind | headers)[0]
