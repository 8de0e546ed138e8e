"""Servers of a fleet: each on ports of its own, to which it returns when it is started again."""

import contextlib
import http.client
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from tests.support.run.ports import free_ports
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served, lmi, serve, write_properties

MODEL = "echo"
PROPERTIES: Mapping[str, Any] = {
    "option.rolling_batch": "echo",
    "option.openai": "true",
    "option.token_seconds": 0.02,
    "option.max_rolling_batch_size": 32,
    "job_queue_size": 1,
}
"""50 tokens a second for each stream."""


class Pod:
    """One server, as often as it is started."""

    def __init__(self, folder: Path, properties: Mapping[str, Any] = PROPERTIES) -> None:
        self._folder = folder
        self._models = [write_properties(folder / MODEL, dict(properties))]
        self._ports = free_ports(4)
        self._running = contextlib.ExitStack()
        self.served: Served

    @property
    def port(self) -> int:
        """Of its front end."""
        return self._ports[3]

    def start(self) -> "Pod":
        """Serve, and wait until it is ready."""
        options = ("--drain-timeout", "30")
        running = serve(self._models, self._folder, *options, ports=self._ports)
        self.served = self._running.enter_context(running)
        wait_for(lambda: self.served.ask("/ping")[0] == 200)
        return self

    def stop(self) -> None:
        """End it as Kubernetes does, without a preStop: by SIGTERM, and wait for its end."""
        self._running.close()

    def kill(self) -> None:
        """End all of it at once, as when its memory is exhausted or its machine is gone."""
        for each in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        self.stop()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Let all of it stand still."""
        processes = self._processes()
        for each in processes:
            each.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for each in processes:
                each.send_signal(signal.SIGCONT)

    def drain(self) -> None:
        """Refuse what is new and let the rest end, as the command `drain` does; it stays up."""
        assert lmi("drain", f"http://{self.served.http}").returncode == 0

    def answered(self) -> list[str]:
        """Return the ids of the requests it has answered with 200, since its log began."""
        log = self.served.log()
        return re.findall(r"POST /v1/\S+ status=200 .* id=(\S+)", log)

    def running(self) -> float:
        (count,) = re.findall(
            r"^vllm:num_requests_running\S* (\S+)$",
            self.served.ask("/metrics")[2].decode(),
            re.MULTILINE,
        )
        return float(count)

    def most_running(self) -> float:
        """Return the most requests at a time that it generates for in a second."""
        end = time.monotonic() + 1
        most = 0.0
        while time.monotonic() < end:
            most = max(most, self.running())
            time.sleep(0.05)
        return most

    @contextlib.contextmanager
    def occupied(self, count: int) -> Iterator[None]:
        """Give it some long streams, as many of which run as it has places."""
        body = {"model": MODEL, "prompt": " word", "max_tokens": 2000, "stream": True}
        with contextlib.ExitStack() as open_ones:
            for _ in range(count):
                client = http.client.HTTPConnection(self.served.front_end, timeout=HANG_SECONDS)
                open_ones.callback(client.close)
                kind = {"content-type": "application/json"}
                client.request("POST", "/v1/completions", json.dumps(body), kind)
            most = min(count, PROPERTIES["option.max_rolling_batch_size"])
            wait_for(lambda: self.running() == most)
            yield

    def _processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.served.process.pid), *self.served.family()]


@contextlib.contextmanager
def pods(folder: Path, count: int) -> Iterator[list[Pod]]:
    made = [Pod(folder / f"pod-{number}") for number in range(count)]
    try:
        with ThreadPoolExecutor() as pool:
            yield list(pool.map(Pod.start, made))
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Pod.stop, made))


def wait_until_asked(pod: Pod) -> None:
    """Wait until a router has a request answered by it that began by now or later."""
    before = len(pod.answered())
    wait_for(lambda: len(pod.answered()) > before)
