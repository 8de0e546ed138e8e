"""A server is ready when all models of its start are there, or cannot be, and no sooner."""

import json
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.support.run.ports import free_ports
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import answer_of, serve, write_properties

ECHO = {"option.rolling_batch": "echo"}
WAITING = """
import os
import time

from djl_python import Output


def handle(inputs):
    # As the model is loaded.
    while inputs.is_empty() and not os.path.exists({flag!r}):
        time.sleep(0.05)
    return None if inputs.is_empty() else Output().add_as_json({{}})
"""
BODY = {"inputs": "a", "parameters": {"max_new_tokens": 1}}


class Probe:
    """Looks at a port on which somebody may listen."""

    def __init__(self, port: int) -> None:
        self.ask = partial(answer_of, f"127.0.0.1:{port}")

    def has_echo(self) -> bool:
        try:
            return b'"echo"' in self.ask("/v1/models")[2]
        except OSError:
            return False

    def is_loading(self) -> bool:
        """Tell whether `echo` is there, and `late` is loaded."""
        text = self.ask("/ping")[2] if self.has_echo() else b""
        return b"loading" in text and b"late" in text

    def look(self) -> list[Any]:
        """Return what is said of a model that is being loaded."""
        paths = ("/predictions/late", "/predictions/none", "/invocations", "/predictions/echo")
        asked = [self.ask(path, BODY) for path in paths]
        return [self.ask("/ping")[0], *((status, "retry-after" in h) for status, h, _ in asked)]


def starve(model: Path) -> None:
    """Stop a stub that starts until Triton takes it for hung, and waits for its exit."""
    running = psutil.process_iter(["cmdline"])
    (stub,) = (each for each in running if str(model) in (each.info["cmdline"] or ()))
    stub.suspend()
    waits = f"grep -qs ' {stub.pid:#x} ' /proc/{stub.ppid()}/task/*/syscall"
    wait_for(lambda: subprocess.call(waits, shell=True) == 0)
    stub.resume()


EXPECTED = [503, (503, True), (503, True), (503, True), (200, False)]


def test_while_a_model_loads_nothing_is_said_for_good_and_one_that_cannot_ends_no_other(
    tmp_path: Path,
) -> None:
    ports, flag = free_ports(4), tmp_path / "flag"
    probe, seen = Probe(ports[3]), list[Any]()
    echo = write_properties(tmp_path / "echo", ECHO)
    late = write_properties(tmp_path / "late", ECHO)
    (late / "model.py").write_text(WAITING.format(flag=str(flag)), encoding="utf-8")
    bad = write_properties(tmp_path / "bad", ECHO | {"option.fail_start": "true"})
    repository = tmp_path / "models"

    def observe() -> None:
        wait_for(probe.is_loading)
        try:
            seen.append(probe.look())
            starve(repository / "late" / "1" / "model.py")
        finally:
            flag.touch()

    observing = threading.Thread(target=observe)
    observing.start()
    options = ("--model-repository", str(repository))
    with serve([echo, late, bad], tmp_path, *options, ports=ports):
        observing.join()
        assert seen == [EXPECTED]
        wait_for(lambda: probe.ask("/ping")[0] == 200)
        assert probe.ask("/predictions/late", BODY)[0] == 200
        assert probe.ask("/predictions/none", BODY)[0] == 404
        missing = lambda: json.loads(probe.ask("/ping")[2])["missing"]  # noqa: E731
        wait_for(lambda: "option.fail_start=true" in missing()["bad"])
        status, _, refused = probe.ask("/predictions/bad", BODY)
        assert (status, b"option.fail_start=true" in refused) == (503, True)
        # It is tried again.
        write_properties(repository / "bad", ECHO)
        wait_for(lambda: "missing" not in json.loads(probe.ask("/ping")[2]))
        wait_for(lambda: probe.ask("/predictions/bad", BODY)[0] == 200)
