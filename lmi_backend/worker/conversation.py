"""The worker's end of its socket: requests in, chunks of answers out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from lmi_backend.engines.protocol import ChunkSink, Engine, Rank, tenant
from lmi_backend.engines.registry import create_follower, is_further_node
from lmi_backend.engines.streams import generate_all
from lmi_backend.errors import (
    ConfigurationError,
    ConnectionLostError,
    EngineDeadError,
    LmiError,
    OptionError,
    WorkerError,
)
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder
from lmi_backend.ipc.messages import failure_of
from lmi_backend.options.spec import CUSTOM
from lmi_backend.threads import spare_collections
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.continuation import ContinuedSink
from lmi_backend.worker.heartbeats import HangDetector, Heartbeats
from lmi_backend.worker.logs import log_tracebacks_once, restore_logs
from lmi_backend.worker.outgoing import Outgoing
from lmi_backend.worker.starting import StartedEngine, build_engine, start_spare

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_LAST_SECONDS = 0.05
"""For an engine that has died to tell the requests."""
_ABORT_SECONDS = 5.0
PAUSE_BYTES: Final = 8 << 20
"""Bytes that the stub has not read, above which answers that can wait are paused."""

_Work = msg.Submit | msg.SubmitHttp | msg.SetAdapter


class Conversation:
    """Serves one connection with one engine, or with one rank of it.

    Args:
        loaded: the engine, if it has started for another stub.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rank: int = 0,
        loaded: StartedEngine | None = None,
    ) -> None:
        self._reader, self._writer, self._rank = reader, writer, rank
        self._decoder: FrameDecoder[msg.ToWorker] = FrameDecoder(msg.ToWorker, limit=LARGEST_FRAME)
        self.loaded = loaded
        self._local: Rank | None = loaded.rank if loaded else None
        """What runs in this process, or is about to."""
        self._is_lost = False
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._has_work = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        writer.transport.set_write_buffer_limits(high=PAUSE_BYTES)
        self._outgoing = Outgoing(
            self._write, writer.transport.get_write_buffer_size, on_refused=self._abort
        )
        self._coalescer = Coalescer(self._outgoing, is_follower=rank > 0)
        self._stopping = asyncio.Event()
        self._proceed = asyncio.get_running_loop().create_future()
        self._status = 0
        self._death = "the engine died"

    async def run(self) -> int:
        incoming = asyncio.create_task(self._receive())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({incoming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        ended = self._fail_open_requests()
        for task in (incoming, stopping):
            task.cancel()
        if not self._is_lost:
            await self._drain()
        elif self.is_orphan and ended:
            # The next stub's must not meet them.
            _, left = await asyncio.wait(ended, timeout=_ABORT_SECONDS)
            if left:
                _log.error("%d requests could not be aborted; stopping", len(left))
                self.stop(1)
        return self._status

    @property
    def is_orphan(self) -> bool:
        """Whether its stub has died, and left it an engine that may serve the next one."""
        is_stopped = self._stopping.is_set() or self._status
        return self._is_lost and not is_stopped and self.loaded is not None

    def close_connection(self) -> None:
        self._writer.close()

    def stop(self, status: int = 0) -> None:
        """End `run` soon; every open request is failed."""
        self._status = self._status or status
        self._stopping.set()

    async def close(self) -> None:
        if self._local is not None:
            await self._local.close()
        self._writer.close()

    async def _receive(self) -> None:
        try:
            while True:
                # No name here: a request that was handled would stay while the next one is awaited.
                self._hear(self._decoder.feed(await self._reader.read(_READ_BYTES)))
        except (ConnectionLostError, OSError):
            _log.info("the stub disconnected")
            self._is_lost = True
        except WorkerError:
            _log.exception("the stub cannot be understood; stopping")
            self.stop(1)
        finally:
            if self._heartbeats is not None:
                self._heartbeats.cancel()

    def _hear(self, messages: Iterable[msg.ToWorker]) -> None:
        for message in messages:
            self._handle_alone(message)

    def _handle_alone(self, message: msg.ToWorker) -> None:
        """Handle a message; what goes wrong fails the request that it is about, and no other."""
        try:
            self._handle(message)
        except Exception as error:  # noqa: BLE001  it must not end the others
            _log.exception("%s failed", type(message).__name__)
            if isinstance(message, _Work):
                self._fail(message.id, "engine", f"{type(error).__name__}: {error}")

    def _handle(self, message: msg.ToWorker) -> None:
        match message:
            case msg.Start():
                self._heartbeats = asyncio.create_task(self._start(message))
            case msg.Proceed():
                self._proceed.set_result(None)
            case msg.Submit() | msg.SubmitHttp() | msg.SetAdapter():
                task = asyncio.create_task(self._answer(message))
                self._coalescer.open(message.id)
                self._tasks[message.id] = task
                self._has_work.set()
            case msg.Abort():
                for request_id in message.ids:
                    self._abort(request_id)
            case msg.Stop():
                self.stop()

    async def _start(self, start: msg.Start) -> None:
        """Load the engine, report that it is ready, then send heartbeats."""
        self._coalescer.set_flush_policy(start.flush_policy)
        self._outgoing.largest_frame = start.largest_frame
        try:
            if self.loaded is None:
                self.loaded = await self._load(start)
            else:
                await self.loaded.start_again(start)
        except OptionError as error:
            self._refuse(error.problem, error.option)
        except ConfigurationError as error:
            if error.__cause__ is not None:
                # The engine's own traceback names the file, or the step, that its words do not.
                _log.error("the engine does not start", exc_info=error.__cause__)
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001  engines raise anything while loading
            _log.exception("engine %s failed to start", start.engine)
            self._refuse(f"engine {start.engine} failed to start: {type(error).__name__}: {error}")
        else:
            self._outgoing.send(msg.Ready(self.loaded.capabilities, self.loaded.adapters))
            await self._beat(self.loaded.rank, start)

    async def _load(self, start: msg.Start) -> StartedEngine:
        is_follower = bool(self._rank) or is_further_node(start.config)
        if is_follower and start.engine != CUSTOM:
            self._local = create_follower(start.engine, start.config)
        else:
            self._local = build_engine(start)
        if start.is_spare:
            capabilities = await start_spare(
                self._local,
                loads=start.loads,
                on_prepared=lambda: self._outgoing.send(msg.Prepared()),
                proceed=self._proceed,
            )
        else:
            capabilities = await self._local.start()
        restore_logs()
        log_tracebacks_once()
        spare_collections()
        return StartedEngine(start, self._local, capabilities)

    async def _beat(self, rank: Rank, start: msg.Start) -> None:
        hang_detector = HangDetector(start.hang_seconds, start.load_seconds)
        send, has_requests = self._outgoing.send, lambda: bool(self._tasks)
        await Heartbeats(rank, hang_detector, send, has_requests, self._has_work, self._die).run()

    def _refuse(self, message: str, option: str = "") -> None:
        self._outgoing.send(msg.StartFailed(message, option))
        self.stop(1)

    def _write(self, frame: bytes) -> None:
        # uvloop raises where a stub that has gone can be written nothing.
        if not (self._is_lost or self._writer.transport.is_closing()):
            self._writer.write(frame)

    def _abort(self, request_id: int) -> None:
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()
        # A task that never ran does not do it.
        self._coalescer.close(request_id)

    async def _answer(self, message: _Work) -> None:
        request_id, loaded = message.id, self.loaded
        if loaded is None or not isinstance(loaded.rank, Engine):
            self._fail(request_id, "engine", "the engine is not started")
            return
        try:
            await self._work(message, loaded.rank, loaded)
        except LmiError as error:
            self._coalescer.fail(failure_of(request_id, error))
            if isinstance(error, EngineDeadError):
                self._die(str(error))
        except Exception as error:  # noqa: BLE001  one request must not end the others
            _log.exception("request %s failed", message.name or request_id)
            self._fail(request_id, "engine", f"{type(error).__name__}: {error}")
        finally:
            self._tasks.pop(request_id, None)
            self._coalescer.close(request_id)

    async def _work(self, message: _Work, engine: Engine, loaded: StartedEngine) -> None:
        tenant.set(getattr(message, "tenant", ""))
        match message:
            case msg.Submit():
                make_sink = partial(self._coalescer.sink, message.id)
                await generate_all(engine, message.requests, make_sink)
            case msg.SubmitHttp():
                answer: ChunkSink = AnswerSink(self._coalescer, message.id, self._drained)
                if message.request.continuation is not None:
                    answer = ContinuedSink(answer, message.request.continuation)
                await engine.respond(message.request, answer)
            case msg.SetAdapter():
                await loaded.set_adapter(engine, message)
                self._coalescer.add(message.id, HttpChunk(is_last=True))

    async def _drained(self) -> None:
        """Let others have their turn, and wait while the stub has much to read."""
        await asyncio.sleep(0)
        await self._writer.drain()

    def _die(self, reason: str) -> None:
        """End soon; the engine tells the other requests first."""
        self._death = reason
        asyncio.get_running_loop().call_later(_LAST_SECONDS, self.stop, 1)

    def _fail_open_requests(self) -> set[asyncio.Task[None]]:
        """Fail all that runs; return the tasks, which are cancelled."""
        ended = set(self._tasks.values())
        for request_id, task in list(self._tasks.items()):
            if self._status:
                self._fail(request_id, "dead", self._death)
            else:
                self._fail(request_id, "stopping", "the server is stopping")
            task.cancel()
        self._tasks.clear()
        return ended

    def _fail(self, request_id: int, kind: msg.FailureKind, text: str) -> None:
        self._coalescer.fail(msg.Failure(request_id, kind, text))

    async def _drain(self) -> None:
        self._outgoing.flush()
        draining = asyncio.create_task(self._writer.drain())
        await asyncio.wait({draining}, timeout=1.0)
        if draining.done() and draining.exception() is not None:
            _log.info("the last messages did not reach the stub: %s", draining.exception())
