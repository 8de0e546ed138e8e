"""vLLM as a group of MPI ranks: an engine core on each, which all take the same steps.

vLLM's `external_launcher` has every rank schedule for itself; that comes out alike as long as each
gets the same requests before the same step. Rank 0 broadcasts them. It alone has the front end:
an AsyncLLM, whose core is this one instead of a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec
import torch
from torch import distributed

from lmi_backend.engines.vllm import compat, names

_log = logging.getLogger(__name__)


_LIMIT: Final = timedelta(days=1)
_SMALL: Final = 1024
"""Bytes that travel with the length, in one broadcast; most steps have no command."""
_LENGTH: Final = 8
_TYPES: Final = {"add_request": "EngineCoreRequest", "add_lora": "LoRARequest"}
"""Commands with an argument that is one of vLLM's structs; the others have plain values."""

Commands = list[tuple[str, "Sequence[Any]"]]


class Broadcast:
    """One group of all ranks; every rank makes it at the same point."""

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo", timeout=_LIMIT)
        self._encoder = names.MsgpackEncoder()
        self._decoders = {
            method: names.MsgpackDecoder(getattr(names, name)) for method, name in _TYPES.items()
        }
        self._plain = names.MsgpackDecoder()

    def send(self, commands: Commands) -> None:
        frame = msgspec.msgpack.encode(
            [(method, self._pack(method, arguments)) for method, arguments in commands]
        )
        small = len(frame) <= _SMALL
        first = len(frame).to_bytes(_LENGTH, "little") + (frame if small else b"")
        self._move(bytearray(first.ljust(_LENGTH + _SMALL, b"\0")))
        if not small:
            self._move(bytearray(frame))

    def receive(self) -> Commands:
        first = self._move(bytearray(_LENGTH + _SMALL))
        length = int.from_bytes(first[:_LENGTH], "little")
        frame = first[_LENGTH:] if length <= _SMALL else self._move(bytearray(length))
        commands = msgspec.msgpack.decode(bytes(frame[:length]))
        return [(method, self._unpack(method, buffers)) for method, buffers in commands]

    def _move(self, data: bytearray) -> bytearray:
        tensor = torch.frombuffer(data, dtype=torch.uint8)  # [bytes]; shares their memory
        distributed.broadcast(tensor, 0, group=self._group)
        return data

    def _pack(self, method: str, arguments: Sequence[Any]) -> list[bytes]:
        value = arguments[0] if method in _TYPES else list(arguments)
        return [bytes(buffer) for buffer in self._encoder.encode(value)]

    def _unpack(self, method: str, buffers: list[bytes]) -> Sequence[Any]:
        if method in _TYPES:
            return [self._decoders[method].decode(buffers)]
        arguments: list[Any] = self._plain.decode(buffers)
        return arguments


# Followers wait in the broadcast, which has a limit of its own: an empty one keeps them there.
_WAIT_SECONDS: Final = 600.0
_STOP_SECONDS: Final = 5.0


class _Command(NamedTuple):
    method: str
    arguments: Sequence[Any]
    result: Future[Any]


class Core:
    """The engine core of one rank. Made and used by one thread only."""

    def __init__(self, vllm_config: Any, *, log_stats: bool) -> None:
        executor = names.Executor.get_class(vllm_config)
        self._core = names.InprocClient(vllm_config, executor, log_stats=log_stats)
        self.broadcast = Broadcast()

    @property
    def has_work(self) -> bool:
        """Whether a step would do something; the same on every rank."""
        core = self._core.engine_core
        return bool(core.scheduler.has_requests() or core.batch_queue)

    def apply(self, method: str, arguments: Sequence[Any]) -> Any:
        return getattr(self._core, method)(*arguments)

    def step(self) -> Any:
        return self._core.get_output()


class LockstepClient:
    """Rank 0's core, with the methods that AsyncLLM calls: `x_async` does `x` on all ranks."""

    engine_ranks_managed = (0,)

    def __init__(self, *, vllm_config: Any, log_stats: bool, **_: Any) -> None:
        self.resources = SimpleNamespace(engine_dead=False)
        self._make = partial(Core, vllm_config, log_stats=log_stats)
        self._commands: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._outputs: asyncio.Queue[Any] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="lmi-lockstep", daemon=True
        )
        self._thread.start()
        ready.result()

    async def get_output_async(self) -> Any:
        """Return the next outputs; raise EngineDeadError once the core is dead."""
        self._loop = asyncio.get_running_loop()
        outputs = await self._outputs.get()
        if isinstance(outputs, Exception):
            raise outputs
        return outputs

    async def add_request_async(self, request: Any) -> None:
        # Nobody waits: its outputs, or its failure, come as those of all requests.
        self._put("add_request", request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        if request_ids and not self.resources.engine_dead:
            self._put("abort_requests", request_ids)

    def dp_engines_running(self) -> bool:
        """Return False: there is no data parallelism."""
        return False

    def shutdown(self, timeout: float | None = None) -> None:
        """End the core's thread; may be called twice."""
        self._commands.put(None)
        self._thread.join(_STOP_SECONDS if timeout is None else timeout)

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_async"):
            raise AttributeError(name)
        return partial(self._call, name.removesuffix("_async"))

    async def _call(self, method: str, *arguments: Any) -> Any:
        return await asyncio.wrap_future(self._put(method, *arguments))

    def _put(self, method: str, *arguments: Any) -> Future[Any]:
        if self.resources.engine_dead:
            raise names.EngineDeadError
        command = _Command(method, arguments, Future())
        self._commands.put(command)
        return command.result

    def _run(self, ready: Future[None]) -> None:
        try:
            core = self._make()
        except BaseException as error:  # noqa: BLE001  raised where the client is made
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            while (commands := self._take(may_wait=not core.has_work)) is not None:
                self._turn(core, commands)
        except Exception:  # noqa: BLE001  whatever it was, every request must fail
            _log.exception("the engine core of rank 0 died")
            self.resources.engine_dead = True
            self._deliver(names.EngineDeadError())

    def _take(self, *, may_wait: bool) -> list[_Command] | None:
        """Return what is to be done before the next step; None at the end."""
        commands: list[_Command] = []
        try:
            while True:
                is_first = may_wait and not commands
                command = self._commands.get(block=is_first, timeout=_WAIT_SECONDS)
                if command is None:
                    return None
                commands.append(command)
        except queue.Empty:
            return commands

    def _turn(self, core: Core, commands: list[_Command]) -> None:
        core.broadcast.send([(command.method, command.arguments) for command in commands])
        for command in commands:
            try:
                command.result.set_result(core.apply(command.method, command.arguments))
            except Exception as error:  # noqa: BLE001  one request must not end the others
                _log.exception("%s failed", command.method)
                command.result.set_exception(error)
                if command.method == "add_request":
                    self._deliver(compat.failed_outputs(command.arguments[0].request_id))
        if core.has_work:
            outputs = core.step()
            if outputs.outputs or outputs.scheduler_stats:
                self._deliver(outputs)

    def _deliver(self, outputs: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._outputs.put_nowait, outputs)


def follow(vllm_config: Any, ready: Future[None]) -> None:
    """Take every step that rank 0 takes; returns only by an error."""
    try:
        core = Core(vllm_config, log_stats=False)
    except BaseException as error:
        ready.set_exception(error)
        raise
    ready.set_result(None)
    while True:
        for method, arguments in core.broadcast.receive():
            try:
                core.apply(method, arguments)
            except Exception:  # noqa: BLE001
                # Rank 0 has the same failure, and reports it.
                _log.exception("%s failed", method)
        if core.has_work:
            core.step()
