"""Mixed traffic for a while: nothing is lost, nothing leaks, nothing grows slower."""

import http.client
import json
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http

from lmi_backend.printable import MIB
from tests.support.harm.hostile import http_body
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served

PROMPT = "The capital of Italy is"
ANSWER = " Rome."
LMI = {"inputs": PROMPT, "parameters": {"max_new_tokens": 20}}
LIMITS = {"max_tokens": 20, "temperature": 0.0, "exclude_input_in_output": True}
GREEDY = {"text_input": PROMPT} | LIMITS
ECHO = {"inputs": "a b", "parameters": {"max_new_tokens": 300}}
LONG: dict[str, Any] = {"inputs": "Tell a story:", "stream": True}

Kind = Callable[["Client"], None]


class Seen:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """By kind: when it was asked, and how long it took."""
        self.lock = threading.Lock()


class Client(threading.Thread):
    """Asks one thing after the other until it is stopped; a wrong answer is a failure."""

    def __init__(self, served: Served, seen: Seen, seed: int, stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self.served, self._seen, self._stopped = served, seen, stopped
        self.chance = random.Random(seed)

    def run(self) -> None:
        names = [*KINDS]
        while not self._stopped.is_set():
            name = self.chance.choice(names)
            began = time.monotonic()
            try:
                KINDS[name](self)
            except Exception as error:  # noqa: BLE001  all are told at the end
                with self._seen.lock:
                    self._seen.failures.append(f"{name}: {type(error).__name__}: {error}")
            with self._seen.lock:
                self._seen.counts[name] += 1
                self._seen.seconds[name].append((began, time.monotonic() - began))


def answered(model: str, body: dict[str, Any], field: str) -> Kind:
    def ask(client: Client) -> None:
        status, answer = client.served.generate(model, body)
        assert (status, answer.get(field)) == (200, ANSWER), answer

    return ask


def streamed(model: str, body: dict[str, Any], text: str) -> Kind:
    """Ask for a stream of LMI's, whose last event has all of its text."""

    def ask(client: Client) -> None:
        with client.served.events(model, body | {"stream": True}) as events:
            *_, last = events
        assert last["generated_text"] == text

    return ask


def _openai(client: Client) -> None:
    messages = [{"role": "user", "content": "What is the capital of Italy?"}]
    body = json.dumps({"messages": messages, "temperature": 0, "max_tokens": 20})
    status, reply = client.served.generate("tiny", {"request": body})
    assert status == 200, reply
    answer = json.loads(reply["response"])["choices"][0]["message"]["content"]
    assert answer == "The capital of Italy is Rome."


def _openai_stream(client: Client) -> None:
    messages = [{"role": "user", "content": "What is the capital of Italy?"}]
    body = json.dumps({"messages": messages, "temperature": 0, "max_tokens": 20, "stream": True})
    with client.served.events("tiny", {"request": body}) as events:
        assert "".join(event["response"] for event in events).endswith("data: [DONE]\n\n")


def _infer(client: Client) -> None:
    text = tritonclient.http.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([PROMPT.encode()], dtype=np.object_))
    with tritonclient.http.InferenceServerClient(client.served.http) as http_client:
        result = http_client.infer("tiny_infer", [text], parameters=LIMITS)
    assert result.as_numpy("text_output")[0].decode() == ANSWER


def _leaves(client: Client) -> None:
    parameters = {"max_new_tokens": 900, "ignore_eos": True}
    with client.served.events("tiny", LONG | {"parameters": parameters}) as events:
        for _ in range(client.chance.randrange(1, 6)):
            next(events)


def _leaves_at_once(client: Client) -> None:
    connection = http.client.HTTPConnection(client.served.http, timeout=HANG_SECONDS)
    connection.request("POST", "/v2/models/tiny/generate_stream", json.dumps(LONG))
    connection.close()


def _is_wrong(client: Client) -> None:
    parameters = {"top_p": client.chance.choice([7, -1, "x"])}
    status, answer = client.served.generate("tiny", {"inputs": "a", "parameters": parameters})
    assert status == 400
    assert "top_p" in answer["error"]


def _is_too_long(client: Client) -> None:
    status, answer = client.served.generate("tiny", {"inputs": "one two " * 1500})
    assert status == 400
    assert "fewer than 1024" in answer["error"]


def _is_hostile(client: Client) -> None:
    status, _ = client.served.generate("echo", http_body(client.chance))
    assert status in (200, 400, 500)


KINDS: dict[str, Kind] = {
    "LMI": answered("tiny", LMI, "generated_text"),
    "LMI, streamed": streamed("tiny", LMI, ANSWER),
    "vLLM backend": answered("tiny", GREEDY, "text_output"),
    "TensorRT-LLM backend": answered("tiny_trtllm", GREEDY, "text_output"),
    "OpenAI": _openai,
    "OpenAI, streamed": _openai_stream,
    "/infer": _infer,
    "leaves while it streams": _leaves,
    "leaves at once": _leaves_at_once,
    "a wrong parameter": _is_wrong,
    "a prompt that is too long": _is_too_long,
    "a hostile body": _is_hostile,
    "echo, streamed": streamed("echo", ECHO, "a b" * 150),
}


CLIENTS = 16
# Until everything has been used once: caches are full, pools have their size.
WARM_UP_SHARE = 0.2
MODELS = ("tiny", "echo")


def _memory(served: Served) -> dict[psutil.Process, float]:
    return {each: each.memory_info().rss / MIB for each in served.family()}


def _middles(seen: Seen, began: float, ended: float) -> dict[str, tuple[float, float]]:
    """Return each kind's median seconds in the first and last third."""
    third = (ended - began) / 3
    found = {}
    for kind, times in seen.seconds.items():
        first = [took for at, took in times if at < began + third]
        last = [took for at, took in times if at >= ended - third]
        found[kind] = statistics.median(first), statistics.median(last)
    return found


def test_mixed_traffic(served: Served, request: pytest.FixtureRequest) -> None:
    seconds = request.config.getoption("--minutes") * 60
    seen, stopped = Seen(), threading.Event()
    deaths = {model: served.metric("lmi_worker_deaths_total", model) for model in MODELS}
    clients = [Client(served, seen, seed, stopped) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(seconds * WARM_UP_SHARE)
    before, began = _memory(served), time.monotonic()
    time.sleep(seconds * (1 - WARM_UP_SHARE))
    ended = time.monotonic()
    stopped.set()
    for client in clients:
        client.join(HANG_SECONDS)
    assert not any(client.is_alive() for client in clients), "a request never ended"
    after = _memory(served)
    middles = _middles(seen, began, ended)
    if path := request.config.getoption("--soak-report"):
        _write(path, seconds, seen, middles, before, after)
    assert not seen.failures, seen.failures[:5]
    assert set(seen.counts) == set(KINDS), "a kind of request was never made"
    for model in MODELS:
        wait_for(lambda model=model: served.metric("lmi_requests_open", model) == 0)
        wait_for(lambda model=model: served.metric("lmi_engine_requests_running", model) == 0)
        assert served.metric("lmi_worker_deaths_total", model) == deaths[model]
    assert after.keys() == before.keys(), "a process was started or ended"
    if seconds < 600:
        # Pools still grow; a leak would not show yet either.
        return
    for process, was in before.items():
        assert after[process] < was * 1.05 + 10, (process.name(), was, after[process])
    growing = {kind: both for kind, both in middles.items() if both[1] > 2 * both[0] + 0.05}
    assert not growing


def _write(
    path: Path,
    seconds: float,
    seen: Seen,
    middles: dict[str, tuple[float, float]],
    before: dict[psutil.Process, float],
    after: dict[psutil.Process, float],
) -> None:
    lines = [
        "<!-- Written by `make soak`. -->\n",
        "# Mixed traffic for a while\n",
        "*For operators: what a server does under mixed traffic for half an hour.*\n",
        "Each client sends one request after the other. The server has two shared cores and a "
        "tiny model. A failure is any answer but the expected one.\n",
        "| minutes | clients | requests | failures |",
        "| --- | --- | --- | --- |",
        f"| {seconds / 60:.0f} | {CLIENTS} | {seen.counts.total()} | {len(seen.failures)} |",
        "\nTimes are medians of the first and the last third after the warm-up.\n",
        "| what | requests | first third, ms | last third, ms |",
        "| --- | --- | --- | --- |",
        *(
            f"| {kind} | {seen.counts[kind]} | {first * 1e3:.0f} | {last * 1e3:.0f} |"
            for kind, (first, last) in sorted(middles.items())
        ),
        "\n| process | MiB after the warm-up | at the end |",
        "| --- | --- | --- |",
        *(
            f"| {' '.join(_name(each).split())} | {was:.0f} | {after.get(each, 0):.0f} |"
            for each, was in before.items()
        ),
        *(
            ["\n## Failures\n", *(f"- {each}" for each in seen.failures[:50])]
            if seen.failures
            else []
        ),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _name(process: psutil.Process) -> str:
    words = process.cmdline()
    if "stub" in process.name():
        return f"stub of {words[1].split('/')[-3]}"
    return "worker" if "lmi_backend.worker.main" in words else words[0].rpartition("/")[2]
