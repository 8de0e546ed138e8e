"""The walks of docs/architecture.md: real runs meet the files that it names, in that order."""

import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.options import load_options
from lmi_backend.plan import plan_model
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.service import Service
from lmi_backend.triton import workers
from tests.support.answers.streams import request_of
from tests.support.doubles.buffering import Front
from tests.support.doubles.endpoints import short_folder
from tests.support.doubles.scripted_model import FRONT_END
from tests.support.run.places import ROOT, TINY
from tests.support.run.waiting import wait_for
from tests.support.run.walks import BEGIN, LOG, Walk, interpreter

PROPERTIES = "option.rolling_batch=echo\noption.resume_window=60\n"
ECHO = "option.openai=true\noption.token_seconds=0.01\n"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROW = re.compile(r"\| *(\d+) *\|([^|]*)\|([^|]*)\|[^|]*\|")
FIGURE = re.compile(r"\| ([^|]+) \| (\d+) \| (\d+) \|")
"""A walk and its process, files that are named, and those that are met in all."""
WALKS = {
    "properties": "From properties to engine arguments",
    "chat": "One request",
    "killed worker": "A killed worker",
    "killed front end": "A killed front end",
    "adapter": "An adapter that a client loads",
}
STREAM: dict[str, Any] = {"inputs": "a b", "parameters": {"max_new_tokens": 60}}
CHAT = {"model": "echo", "messages": [{"role": "user", "content": "a b"}], "stream": True}
Met = dict[str, list[str]]


def written(walk: str) -> Met:
    section = PAGE.partition(f"\n## {WALKS[walk]}\n")[2].partition("\n## ")[0]
    files: Met = {}
    process = ""
    for _, named, code in ROW.findall(section):
        process = named.strip() or process
        files.setdefault(process, []).extend(re.findall(r"`([\w/]+\.py)`", code))
    return files


def role_of(thread: str) -> str:
    """Return the process that a thread stands for: the front end runs in this one too."""
    if thread in (threading.main_thread().name, "lmi-cancel"):
        # The second one looks at all requests in turn, at any moment of a walk.
        return ""
    return FRONT_END if thread == FRONT_END else "stub"


class Server:
    """A stub, its worker and a front end, whose walks are followed."""

    def __init__(self, folder: Path, walk: Walk) -> None:
        self.folder, self.walk, self.walks = folder, walk, dict[str, Met]()
        self._others = {*psutil.Process().children()}
        arguments = {"model_repository": str(folder / "echo"), "model_name": "echo"}
        self.model = workers.start_workers(arguments, lambda *_: None, lambda _: None)

    def worker(self) -> psutil.Process:
        return next(each for each in psutil.Process().children() if each not in self._others)

    def follow(self, name: str, port: int, path: str, body: Any, **headers: str) -> bytes:
        """Follow a request to its end; return what its client gets."""
        log = self.folder / "log"
        num_walks = log.read_text("utf-8").count("\n\n")
        self.worker().send_signal(BEGIN)
        wait_for(lambda: log.read_text("utf-8").count("\n\n") > num_walks)
        if name == "killed front end":
            self.worker().suspend()  # its heartbeats would be met; else nothing is the worker's
        with self.walk.followed() as met, opened(port, path, body, **headers) as client:
            data = read_to_end(client)
        self.worker().resume()
        # The worker is idle then, and has no step left that belongs to the request.
        self.walks[name] = met | {"worker": log.read_text("utf-8").split("\n\n")[-1].split()}
        return data


def opened(port: int, path: str, body: Any, **headers: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    client.sendall(request_of(path, json.dumps(body).encode(), "connection: close", *lines))
    return client


def read_to_end(client: socket.socket) -> bytes:
    return b"".join(iter(partial(client.recv, 1 << 16), b""))


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Met]]:
    """Each walk, followed once."""
    walk = Walk(role_of)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack, walk.installed():
        base = next(runs := short_folder(patch))
        stack.callback(next, runs, None)
        patch.setenv("PYTHON_EXECUTABLE", str(interpreter(base)))
        patch.setenv(LOG, str(base / "log"))
        # The echo engine takes adapters, and no option has them served.
        patch.setattr(workers, "LoraManager", partial(_lora_manager, base))
        folder = base / "echo"
        folder.mkdir()
        (folder / "serving.properties").write_text(PROPERTIES + ECHO, encoding="utf-8")
        server = Server(base, walk)
        stack.callback(server.model.close)
        _run(server)
        yield server.walks


def _lora_manager(
    root: Path, adapters: AdapterSet, service: Service, _: object, **more: bool
) -> LoraManager:
    return LoraManager(adapters, service, (str(root),), **more | {"is_enabled": True})


def _run(server: Server) -> None:
    adapter = server.folder / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8}', encoding="utf-8")
    (adapter / "adapter_model.safetensors").touch()
    last = ""
    with Front(server.folder).run() as front:
        front.wait()
        for _ in range(2):
            # The first one of a kind meets more: names are looked up, and caches filled.
            assert b"[DONE]" in server.follow("chat", front.port, "/v1/chat/completions", CHAT)
        body = {"lora_name": "new", "lora_path": str(adapter)}
        assert b" 200 " in server.follow("adapter", front.port, "/v1/load_lora_adapter", body)
        with opened(front.port, "/generate_stream", STREAM, x_lmi_resumable="1") as client:
            received = b""
            while not (ids := re.findall(rb"id: (\S+)\n", received)):
                received += client.recv(1 << 16)
            last = ids[-1].decode()
    with Front(server.folder).run() as front:
        front.wait()
        # The log is whole.
        wait_for(lambda: not server.model.service.snapshot().open)
        data = server.follow(
            "killed front end", front.port, "/generate_stream", STREAM, last_event_id=last
        )
        assert b'generated_text": "a b' in data
        with opened(front.port, "/generate_stream", STREAM) as client:
            client.recv(100)
            with server.walk.followed() as met:
                os.kill(server.worker().pid, signal.SIGKILL)
                assert b'generated_text": "a b' in read_to_end(client)
            server.walks["killed worker"] = met


@pytest.fixture(scope="module")
def plan_walk(tmp_path_factory: pytest.TempPathFactory) -> Met:
    """From a model's properties to the command of its worker."""
    folder = tmp_path_factory.mktemp("planned")
    lines = f"option.rolling_batch=vllm\noption.model_id={TINY / 'llama'}\n"
    (folder / "serving.properties").write_text(lines, encoding="utf-8")
    walk = Walk(lambda _: "stub")
    with walk.installed(), walk.followed() as met:
        plan = plan_model(load_options(folder, {}), {})
        worker_command(plan, LaunchContext(0, folder, "address", "token"), {})
    return met


@pytest.fixture(scope="module")
def met(walks: dict[str, Met], plan_walk: Met) -> dict[str, Met]:
    return walks | {"properties": plan_walk}


@pytest.mark.parametrize("walk", WALKS)
def test_a_run_meets_the_files_that_the_page_names_in_their_order(
    walk: str, met: dict[str, Met]
) -> None:
    assert written(walk)
    for process, files in written(walk).items():
        assert not [name for name in files if not (ROOT / "lmi_backend" / name).is_file()]
        later = iter(met[walk][process])
        assert all(name in later for name in files), (files, met[walk][process])


def test_a_run_meets_no_more_files_than_the_page_says(met: dict[str, Met]) -> None:
    section = PAGE.partition("\n## How many files\n")[2].partition("\n## ")[0]
    figures = {what: (int(named), int(most)) for what, named, most in FIGURE.findall(section)}
    assert figures.keys() == {f"{walk}, {process}" for walk in WALKS for process in written(walk)}
    for what, (named, most) in figures.items():
        walk, _, process = what.partition(", ")
        files = {*met[walk][process]}
        assert len(written(walk)[process]) == named, what
        assert len(files) <= most, (what, files)
