"""The worker's end of its socket: requests in, chunks of answers out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import Final

from lmi_backend.engines.protocol import ChunkSink, Engine, Rank
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
from lmi_backend.garbage import spare_collections
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder
from lmi_backend.options.engine_spec import CUSTOM
from lmi_backend.worker.built_engine import build_engine
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.continuation import ContinuedSink
from lmi_backend.worker.hang import HangDetector
from lmi_backend.worker.logs import log_tracebacks_once, restore_logs
from lmi_backend.worker.outgoing import Outgoing
from lmi_backend.worker.spare import Spare

_log = logging.getLogger(__name__)

_READ_BYTES = 1 << 18
_STATS_SECONDS = 0.25
"""Each heartbeat wakes two processes, and what is made of the stats is looked at no more often."""
_LAST_SECONDS = 0.05
"""For an engine that has died to tell the requests."""
PAUSE_BYTES: Final = 8 << 20
"""Bytes that the stub has not read, above which answers that can wait are paused."""

_Work = msg.Submit | msg.SubmitHttp | msg.SetAdapter


class Conversation:
    """Serves one connection with one engine, or with one rank of it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rank: int = 0
    ) -> None:
        self._reader, self._writer, self._rank = reader, writer, rank
        self._decoder: FrameDecoder[msg.ToWorker] = FrameDecoder(msg.ToWorker, limit=LARGEST_FRAME)
        self._local: Rank | None = None
        """What runs in this process."""
        self._engine: Engine | None = None
        """The same, where it takes requests."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._has_work = asyncio.Event()
        self._heartbeats: asyncio.Task[None] | None = None
        writer.transport.set_write_buffer_limits(high=PAUSE_BYTES)
        self._outgoing = Outgoing(
            writer.write, writer.transport.get_write_buffer_size, on_refused=self._abort
        )
        self._coalescer = Coalescer(self._outgoing, is_follower=rank > 0)
        self._complaints: set[str] = set()
        self._stopping = asyncio.Event()
        self._proceed = asyncio.get_running_loop().create_future()
        self._status = 0
        self._death = "the engine died"

    async def run(self) -> int:
        """Serve until stopped; return the process's exit status."""
        incoming = asyncio.create_task(self._receive())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({incoming, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self._fail_open_requests()
        for task in (incoming, stopping):
            task.cancel()
        await self._drain()
        return self._status

    def stop(self, status: int = 0) -> None:
        """End `run` soon; every open request is failed."""
        self._status = self._status or status
        self._stopping.set()

    async def close(self) -> None:
        """Free the engine and the socket."""
        if self._local is not None:
            await self._local.close()
        self._writer.close()

    async def _receive(self) -> None:
        try:
            while True:
                for message in self._decoder.feed(await self._reader.read(_READ_BYTES)):
                    self._handle_alone(message)
        except ConnectionLostError:
            _log.info("the stub is gone; stopping")
            self.stop()
        except (WorkerError, OSError):
            _log.exception("the stub cannot be understood; stopping")
            self.stop(1)
        finally:
            if self._heartbeats is not None:
                self._heartbeats.cancel()

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
            case msg.Proceed(adapters=adapters):
                self._proceed.set_result(adapters)
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
            is_follower = bool(self._rank) or is_further_node(start.config)
            if is_follower and start.engine != CUSTOM:
                self._local = create_follower(start.engine, start.config)
            else:
                self._local = self._engine = build_engine(start)
            if start.is_spare:
                spare = Spare(self._local, self._engine, loads=start.loads)
                await spare.prepare()
                self._outgoing.send(msg.Prepared())
                capabilities = await spare.start(self._proceed)
            else:
                capabilities = await self._local.start()
            restore_logs()
        except OptionError as error:
            self._refuse(error.problem, error.option)
        except ConfigurationError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001  engines raise anything while loading
            _log.exception("engine %s failed to start", start.engine)
            self._refuse(f"engine {start.engine} failed to start: {type(error).__name__}: {error}")
        else:
            log_tracebacks_once()
            spare_collections()
            self._outgoing.send(msg.Ready(capabilities))
            hang_detector = HangDetector(start.hang_seconds, start.load_seconds)
            await self._send_heartbeats(self._local, hang_detector)

    def _refuse(self, message: str, option: str = "") -> None:
        self._outgoing.send(msg.StartFailed(message, option))
        self.stop(1)

    async def _send_heartbeats(self, engine: Rank, hang_detector: HangDetector) -> None:
        """Send the engine's stats once a second, and when they change, at most four times a second.

        An engine that has nothing to do is looked at once a second.
        """
        sent, sent_at = EngineStats(), -msg.HEARTBEAT_SECONDS
        while True:
            stats, now = self._stats(engine, sent), time.monotonic()
            if stats != sent or now - sent_at >= msg.HEARTBEAT_SECONDS:
                self._outgoing.send(msg.Heartbeat(stats))
                sent, sent_at = stats, now
                await self._check(engine, hang_detector, stats)
            if self._tasks or stats.running or stats.waiting:
                await asyncio.sleep(_STATS_SECONDS)
            else:
                self._has_work.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._has_work.wait(), msg.HEARTBEAT_SECONDS)

    def _stats(self, engine: Rank, before: EngineStats) -> EngineStats:
        """Return the engine's stats, or those before where it cannot tell."""
        try:
            return engine.stats()
        except Exception as error:  # noqa: BLE001  without heartbeats all requests would end
            self._complain("the engine's stats cannot be had", error)
            return before

    async def _check(self, engine: Rank, hang_detector: HangDetector, stats: EngineStats) -> None:
        """Stop the worker if its engine is dead or hangs."""
        try:
            hang_detector.check(stats, time.monotonic())
            await engine.check_health()
        except EngineDeadError as error:
            _log.error("%s", error)
            self._die(str(error))
        except Exception as error:  # noqa: BLE001  as above
            self._complain("the engine's health cannot be had", error)

    def _complain(self, problem: str, error: Exception) -> None:
        """Log what goes wrong with each heartbeat, once."""
        if problem not in self._complaints:
            self._complaints.add(problem)
            _log.error("%s: %s: %s", problem, type(error).__name__, error)

    def _abort(self, request_id: int) -> None:
        task = self._tasks.pop(request_id, None)
        if task is not None:
            task.cancel()
        # A task that never ran does not do it.
        self._coalescer.close(request_id)

    async def _answer(self, message: _Work) -> None:
        """Answer one request; an error fails this one only."""
        request_id = message.id
        if self._engine is None:
            self._fail(request_id, "engine", "the engine is not started")
            return
        try:
            await self._work(message, self._engine)
        except LmiError as error:
            self._coalescer.fail(failure_of(request_id, error))
            if isinstance(error, EngineDeadError):
                self._die(str(error))
        except Exception as error:  # noqa: BLE001  one request must not end the others
            _log.exception("request %s failed", request_id)
            self._fail(request_id, "engine", f"{type(error).__name__}: {error}")
        finally:
            self._tasks.pop(request_id, None)
            self._coalescer.close(request_id)

    async def _work(self, message: _Work, engine: Engine) -> None:
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
                await _set_adapter(message, engine)
                self._coalescer.add(message.id, HttpChunk(is_last=True))

    async def _drained(self) -> None:
        """Let others have their turn, and wait while the stub has much to read."""
        await asyncio.sleep(0)
        await self._writer.drain()

    def _die(self, reason: str) -> None:
        """End soon; the engine tells the other requests first."""
        self._death = reason
        asyncio.get_running_loop().call_later(_LAST_SECONDS, self.stop, 1)

    def _fail_open_requests(self) -> None:
        for request_id, task in list(self._tasks.items()):
            if self._status:
                self._fail(request_id, "dead", self._death)
            else:
                self._fail(request_id, "stopping", "the server is stopping")
            task.cancel()
        self._tasks.clear()

    def _fail(self, request_id: int, kind: msg.FailureKind, text: str) -> None:
        self._coalescer.fail(msg.Failure(request_id, kind, text))

    async def _drain(self) -> None:
        """Let the last messages reach the stub, if it still reads."""
        self._outgoing.flush()
        draining = asyncio.create_task(self._writer.drain())
        await asyncio.wait({draining}, timeout=1.0)
        if draining.done() and draining.exception() is not None:
            _log.info("the last messages did not reach the stub: %s", draining.exception())


async def _set_adapter(message: msg.SetAdapter, engine: Engine) -> None:
    if message.folder:
        await engine.load_adapter(
            message.name, message.folder, preload=message.preload, pin=message.pin
        )
    else:
        await engine.unload_adapter(message.name)
