"""Kill a process of vLLM's server again and again under streams, and time their pauses."""

import http.client
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import psutil

from tests.support.serving import Served
from tests.support.waiting import wait_for

STREAMS = 32
WORKER = "vLLM's worker or its engine core"
SERVER = "the stub of vLLM or tritonserver"
TOKENS = 400
MODEL = "tiny"
_WORDS = ("France", "Italy", "Spain", "Norway", "Japan", "Chile", "Kenya", "Peru")
_PARTS = (" one", " two", " three", " four")
# After which a worker has shown that starts succeed: a spare of one that dies sooner is not used.
_LIFE_SECONDS = 11.0


class TimedStream:
    """A greedy stream: its text, how many tokens its usage counts, its endings and its gaps."""

    def __init__(self, served: Served, number: int) -> None:
        self._served, self.number = served, number
        self.text, self.error, self.num_tokens = "", "", 0
        self.endings = 0
        self.heard_at: list[float] = []
        """Times of its events, by `time.monotonic`."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._thread.join(240)
        if self._thread.is_alive():
            self.error = self.error or "it did not end"

    def pause(self) -> float:
        """Return the longest time between two of its events, in seconds."""
        return max(later - one for one, later in pairwise(self.heard_at))

    def _run(self) -> None:
        path, body = _body(self.number)
        connection = http.client.HTTPConnection(self._served.front_end, timeout=240)
        try:
            connection.request("POST", path, json.dumps(body))
            for line in connection.getresponse():
                if line.startswith(b"data:"):
                    self._take(line.removeprefix(b"data:").strip())
        except (OSError, http.client.HTTPException) as error:
            self.error = self.error or repr(error)
        finally:
            connection.close()

    def _take(self, data: bytes) -> None:
        self.heard_at.append(time.monotonic())
        if data == b"[DONE]":
            self.endings += 1
            return
        event = json.loads(data)
        if error := event.get("error"):
            self.error = str(error)
        if usage := event.get("usage"):
            self.num_tokens = usage["completion_tokens"]
        for choice in event.get("choices", ()):
            self.text += choice.get("text") or choice.get("delta", {}).get("content") or ""


def _body(number: int) -> tuple[str, dict[str, Any]]:
    """Return path and body of a stream; each number has a prompt of its own."""
    prompt = f"The capital of {_WORDS[number % len(_WORDS)]} is{_PARTS[number // len(_WORDS) % 4]}"
    body: dict[str, Any] = {"model": MODEL, "max_tokens": TOKENS, "temperature": 0}
    body |= {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    if number % 2:
        return "/v1/completions", body | {"prompt": prompt}
    return "/v1/chat/completions", body | {"messages": [{"role": "user", "content": prompt}]}


@dataclass
class Pauses:
    """What was seen of all kills together."""

    longest: list[float] = field(default_factory=list)
    """The longest pause of any stream, of each kill."""
    each: list[float] = field(default_factory=list)
    """The longest pause of each stream."""
    counts: Counter[str] = field(default_factory=Counter)
    """How streams differ from an undisturbed one: `lost`, `doubled`, `changed`, `failed`."""
    errors: Counter[str] = field(default_factory=Counter)
    mib: int = 0
    """Memory of the last spare."""
    what: str = WORKER
    """What is killed."""

    def take(self, streams: list[TimedStream], undisturbed: list[str]) -> None:
        """Compare streams that a worker was killed under with what they say without."""
        pauses = [stream.pause() for stream in streams]
        self.longest.append(max(pauses))
        self.each += pauses
        for stream, text in zip(streams, undisturbed, strict=True):
            if stream.error or stream.endings != 1:
                self.counts["failed"] += 1
                self.errors[stream.error or f"{stream.endings} endings"] += 1
            elif stream.text != text or stream.num_tokens != TOKENS:
                kind = len(stream.text) - len(text) or stream.num_tokens - TOKENS
                self.counts["lost" if kind < 0 else "doubled" if kind > 0 else "changed"] += 1

    def row(self) -> tuple[str, str]:
        """Return the row of tests/chaos/results.md."""
        kills, counts = len(self.longest), self.counts
        more = ", with a spare" if self.what == WORKER else ""
        fault = f"{self.what} is killed, {kills} times{more}"
        seen = (
            f"{kills * STREAMS} greedy streams, {STREAMS} at each kill: {counts['failed']} failed, "
            f"{counts['lost']} lost text, {counts['doubled']} repeated some, {counts['changed']} "
            f"changed it. The longest pause was {max(self.longest):.1f} s, the median of the "
            f"longest at each kill {median(self.longest):.1f} s. "
        )
        if self.what == WORKER:
            return fault, f"{seen}The spare takes {self.mib} MiB"
        return fault, f"{seen}The worker stays, and the next stub adopts it each time"


def ask(served: Served) -> list[TimedStream]:
    """Ask for all streams, and wait until each has begun."""
    streams = [TimedStream(served, number) for number in range(STREAMS)]
    wait_for(lambda: all(len(each.heard_at) > 1 or each.error for each in streams), 120)
    return streams


def whole(served: Served) -> tuple[list[str], float]:
    """Return the undisturbed texts, and how long they take once all have begun."""
    streams, began = ask(served), time.monotonic()
    for stream in streams:
        stream.wait()
    assert all(not each.error and each.num_tokens == TOKENS for each in streams), streams[0].error
    return [each.text for each in streams], time.monotonic() - began


def kill_again_and_again(
    served: Served, kills: int, say: Callable[[str], None], seed: int = 0
) -> Pauses:
    """Kill a worker or its core under streams, at random, each time that there is a spare."""
    seen, chance = Pauses(), random.Random(seed)
    undisturbed, seconds = whole(served)
    say(f"undisturbed streams take {seconds:.1f} s")
    ready_at = time.monotonic()
    for number in range(1, kills + 1):
        wait_for(lambda: served.metric("lmi_worker_spare", MODEL) == 1, 180)
        wait_for(lambda: len(_spares(served)) == number)  # noqa: B023
        spare = _spares(served)[-1]
        seen.mib = _mib(spare)
        idle, idle_since = _cpu(spare), time.monotonic()
        worker = served.workers(MODEL)[-1]
        wait_for(lambda: time.monotonic() - ready_at > _LIFE_SECONDS)  # noqa: B023
        streams = ask(served)
        time.sleep(chance.uniform(0, seconds / 2))
        victim, name = _victim(worker, chance)
        cpu, began = _cpu(spare), time.time()
        idle, waited = cpu - idle, time.monotonic() - idle_since
        victim.kill()
        for stream in streams:
            stream.wait()
        # Or sooner.
        ready_at = time.monotonic()
        cpu = _cpu(spare) - cpu
        seen.take(streams, undisturbed)
        say(
            f"{number}: {name} killed at {began:.3f}: pause {seen.longest[-1]:.2f} s, {cpu:.1f} s "
            f"of the spare's CPU until all had ended, load {psutil.getloadavg()[0]:.1f}; "
            f"it waited for {waited:.0f} s with {idle:.2f} s of CPU, and {seen.mib} MiB; "
            f"{dict(seen.counts) or 'nothing lost, repeated or changed'} {dict(seen.errors) or ''}"
        )
        # Its spare was used, and no other start.
        wait_for(lambda: [each.pid for each in served.workers(MODEL)] == [spare])  # noqa: B023
    return seen


def kill_the_server(
    served: Served, kills: int, say: Callable[[str], None], seed: int = 0
) -> Pauses:
    """Kill the stub or tritonserver under streams, in turn; the worker must stay."""
    seen, chance = Pauses(what=SERVER), random.Random(seed)
    undisturbed, seconds = whole(served)
    say(f"undisturbed streams take {seconds:.1f} s")
    (worker,) = served.workers(MODEL)
    for number in range(1, kills + 1):
        streams = ask(served)
        time.sleep(chance.uniform(0, seconds / 2))
        name = ("triton_python_backend_stub", "tritonserver")[number % 2]
        (victim,) = served.named(name)
        victim.kill()
        for stream in streams:
            stream.wait()
        taken_at = time.monotonic()
        seen.take(streams, undisturbed)
        say(
            f"{number}: {name} killed: pause {seen.longest[-1]:.2f} s, "
            f"load {psutil.getloadavg()[0]:.1f}; "
            f"{dict(seen.counts) or 'nothing lost, repeated or changed'} {dict(seen.errors) or ''}"
        )
        assert served.workers(MODEL) == [worker], "the worker did not outlive it"
        wait_for(lambda: time.monotonic() - taken_at > _LIFE_SECONDS)  # noqa: B023
    return seen


def _spares(served: Served) -> list[int]:
    """Return the process id of each spare that there was."""
    return [int(pid) for pid in re.findall(r"has a spare after \S+ s, pid (\d+)", served.log())]


def _victim(worker: psutil.Process, chance: random.Random) -> tuple[psutil.Process, str]:
    if chance.random() < 0.5:
        return worker, "worker"
    family = worker.children(recursive=True)
    return next(each for each in family if "EngineCore" in " ".join(each.cmdline())), "core"


def _mib(pid: int) -> int:
    """Return the memory of a process and of those below it; what they share counts once."""
    spare = psutil.Process(pid)
    family = [spare, *spare.children(recursive=True)]
    return round(sum(each.memory_full_info().pss for each in family) / (1 << 20))


def _cpu(pid: int) -> float:
    """Return the CPU seconds of a process and of those below it."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return float(sum(sum(each.cpu_times()[:2]) for each in family))
