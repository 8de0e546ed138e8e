"""vLLM's output processor, with answers of our own next to its requests, and its counts.

An AsyncLLM hands each request to its output processor before its core gets it, and each step's
outputs after. A subclass keeps the requests that `answers.generate` sends; their outputs go to an
`OwnAnswer`. All others are vLLM's: its handler, aborts, statistics and errors stay what they are.
"""

from __future__ import annotations

import inspect
import time
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.engines.vllm.answers import current_generation, requests_of
from lmi_backend.engines.vllm.resume import FORCED_IDS, current_replay
from lmi_backend.ipc.engine import EngineStats, histogram_of_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from lmi_backend.engines.vllm.answers import OwnAnswer
    from lmi_backend.engines.vllm.resume import ReplayedAnswer


class OwnAnswers:
    """What a processor does besides vLLM's own work; `attach` makes the class of both."""

    answers: dict[str, OwnAnswer]
    """Those that are open, by the engine's id of a request."""
    replays: dict[str, ReplayedAnswer]
    """Of requests of vLLM's whose core repeats tokens, by the same ids."""
    recorded: tuple[list[Any], list[Any]] | None
    """Requests and outputs of vLLM's that pass, while `self_test` looks at them."""
    times: RequestTimes

    def add_request(self, request: Any, *more: Any, **named: Any) -> None:
        """Take a request, which the core gets next; both may be changed here."""
        # A client could name ids that no vocabulary has, and its core would die.
        if extra := getattr(request.sampling_params, "extra_args", None):
            extra.pop(FORCED_IDS, None)
        ours, resumed = current_generation.get(), current_replay.get()
        if ours is not None:
            self.answers[request.request_id] = ours.answer(request, self)
            return
        if self.recorded is not None:
            self.recorded[0].append(copy(request))
        for each in (*more, *named.values()):
            is_queue = isinstance(each, names.RequestOutputCollector)
            if is_queue and request.sampling_params is not None:  # of pooling, an output is whole
                compat.subclass(each, FailureApart, failure=None)
        super().add_request(request, *more, **named)  # type: ignore[misc]
        if resumed is not None and not resumed.is_begun and resumed.begin(request, self):
            self.replays[request.request_id] = resumed

    is_counted: bool
    """Whether an option of the user's has vLLM tell what it counts."""

    def process_outputs(
        self,
        engine_core_outputs: Iterable[Any],
        engine_core_timestamp: float | None = None,
        iteration_stats: Any = None,
        **named: Any,
    ) -> Any:
        """Give the outputs of a step to those that they are for.

        vLLM counts each token for the metrics page of its server, which nobody reads here.
        """
        answers, theirs, stopped = self.answers, [], []
        # Each token passes here, so that nothing is called that can be said in a line.
        now = engine_core_timestamp or time.monotonic()
        for output in engine_core_outputs:
            if output.events or output.finish_reason is not None:
                self.times.note(output, now)
            answer = answers.get(output.request_id)
            if answer is None:
                theirs.append(output)
            elif answer.take(output):
                del answers[output.request_id]
                if output.finish_reason is None:
                    # The core does not know of a stop string, nor of a failure of ours.
                    stopped.append(output.request_id)
        if self.replays:
            theirs = [new for each in theirs if (new := self._new_alone(each)) is not None]
        if self.recorded is not None:
            self.recorded[1].extend(map(_copied, theirs))
        given = theirs, engine_core_timestamp, iteration_stats if self.is_counted else None
        processed = super().process_outputs(*given, **named)  # type: ignore[misc]
        processed.reqs_to_abort.extend(stopped)
        for name in processed.reqs_to_abort:
            self.times.end(name, now)
        return processed

    def _new_alone(self, output: Any) -> Any:
        """Return an output without what it repeats; None if nothing is left."""
        resumed = self.replays.get(output.request_id)
        if resumed is None:
            return output
        try:
            return resumed.repeated.new_of(output)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            resumed.fail(error)
            return None
        finally:
            if not resumed.repeated:
                del self.replays[output.request_id]

    def propagate_error(self, error: Exception) -> None:
        super().propagate_error(error)  # type: ignore[misc]
        for answer in list(self.answers.values()):
            answer.fail(error)
        self.answers.clear()

    def get_num_unfinished_requests(self) -> int:
        theirs: int = super().get_num_unfinished_requests()  # type: ignore[misc]
        return theirs + len(self.answers)

    def has_unfinished_requests(self) -> bool:
        return self.get_num_unfinished_requests() > 0

    def get_num_queued_tokens(self) -> int:
        """Return how many tokens the prompts have that no output came for (since 0.32)."""
        theirs: int = super().get_num_queued_tokens()  # type: ignore[misc]
        return theirs + sum(each.prompt_len for each in self.answers.values() if each.is_prefilling)


class FailureApart:
    """What a RequestOutputCollector does besides: it merges no failure with the text before it.

    vLLM's server writes nothing of an output that tells a failure, also where it has text.
    """

    output: Any
    failure: Any

    def put(self, output: Any) -> None:
        fails = any(each.finish_reason == "error" for each in getattr(output, "outputs", ()))
        if fails and self.output is not None:
            self.failure = output
        else:
            super().put(output)  # type: ignore[misc]

    async def get(self) -> Any:
        return self._followed(await super().get())  # type: ignore[misc]

    def get_nowait(self) -> Any:
        return self._followed(super().get_nowait())  # type: ignore[misc]

    def _followed(self, output: Any) -> Any:
        failure, self.failure = self.failure, None
        if failure is not None:
            super().put(failure)  # type: ignore[misc]
        return output


def _copied(output: Any) -> Any:
    """Return a copy of an output, whose list of ids vLLM extends when it merges outputs."""
    copied = copy(output)
    copied.new_token_ids = list(output.new_token_ids)
    return copied


def is_traced(engine: Any) -> bool:
    """Tell whether an option of the user's has vLLM make spans of what it counts."""
    config = getattr(engine.vllm_config, "observability_config", None)
    return bool(getattr(config, "otlp_traces_endpoint", None))


def attach(engine: Any, *, is_counted: bool = False) -> None:
    """Have the processor of an AsyncLLM keep our answers, before its first request."""
    theirs = engine.output_processor
    if theirs.request_states:
        raise RuntimeError("it has requests already")
    compat.subclass_of(names.RequestOutputCollector, FailureApart)  # it must fit each request's
    compat.subclass(
        theirs,
        OwnAnswers,
        "get_num_queued_tokens",
        answers={},
        replays={},
        recorded=None,
        is_counted=is_counted or is_traced(engine),
        times=RequestTimes(),
    )


class RequestTimes:
    """The parts of requests' times, by the events that the core tells with their outputs."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        """When the first token came of each request that is open."""
        self.preemptions = 0
        self.queue, self.prefill, self.decode = (histogram_of_seconds() for _ in range(3))

    def note(self, output: Any, now: float) -> None:
        """Take the events of an output, and its end, without fail.

        Args:
            now: the end of its step, by the core's clock.
        """
        name, queued = output.request_id, now
        with fast_paths.guarded("load", "events of requests that can be read"):
            for event in output.events or ():
                if event.type.name == "QUEUED":
                    queued = event.timestamp
                elif event.type.name == "PREEMPTED":
                    self.preemptions += 1
                elif name not in self._begun:
                    self._begun[name] = now
                    self.queue.observe(max(0.0, event.timestamp - queued))
                    self.prefill.observe(max(0.0, now - event.timestamp))
        if output.finish_reason is not None:
            self.end(name, now)

    def end(self, name: str, now: float) -> None:
        if (began := self._begun.pop(name, None)) is not None:
            self.decode.observe(now - began)

    def keep(self, names: AbstractSet[str]) -> None:
        """Forget the requests that are not open: vLLM says nothing of those that are aborted."""
        self._begun = {name: began for name, began in self._begun.items() if name in names}


_SUMS: Final = (
    "running", "waiting", "steps", "prompt_tokens_looked_up", "prompt_tokens_cached",
    "tokens_drafted", "tokens_accepted",
)  # fmt: skip


class LastStats:
    """What vLLM's core said of its last step. `loggers` are what vLLM is to be given.

    With data parallelism each copy of the model reports by itself: requests are added up, of shares
    of KV-cache blocks the largest counts.
    """

    def __init__(self) -> None:
        self._copies: dict[int, _Copy] = {}

    @property
    def value(self) -> EngineStats:
        copies = [EngineStats(**vars(each)) for each in self._copies.values()]
        if len(copies) < 2:
            return copies[0] if copies else EngineStats()
        sums: dict[str, Any] = {
            name: sum(getattr(each, name) or 0 for each in copies) for name in _SUMS
        }
        return EngineStats(kv_cache_usage=max(each.kv_cache_usage for each in copies), **sums)

    def copies(self, requests: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        return tuple(
            (self._copies[number].steps, count)
            for number, count in requests.items()
            if number in self._copies
        )

    def loggers(self) -> list[type]:
        """Return the class that vLLM is to log with; none if it cannot report here."""
        made: list[type] = []
        fast_paths.probe(
            "load", "loggers of a scheduler's stats", lambda: made.append(self._logger())
        )
        return made

    def _logger(self) -> type:
        theirs = names.PrometheusStatLogger
        parameters = inspect.signature(theirs.record).parameters
        if list(parameters)[1:2] != ["scheduler_stats"]:
            raise TypeError(f"its loggers record ({', '.join(parameters)})")
        public = [name for name in dir(theirs) if not name.startswith("_")]
        silent = {name: _do_nothing for name in public if callable(getattr(theirs, name))}
        own = silent | {"record": _Logger.record, "copies": self._copies}
        return type("_VllmsLogger", (_Logger, theirs), own)


def _capacity(engine: Any) -> dict[str, int]:
    cache, lora = engine.vllm_config.cache_config, engine.vllm_config.lora_config
    return {
        "kv_block_size": cache.block_size or 0,
        "kv_blocks": cache.num_gpu_blocks or 0,
        "max_adapters": lora.max_loras if lora is not None else 0,
    }


def read_stats(
    engine: Any, last_stats: LastStats, num_requests: int, num_answered: int
) -> EngineStats:
    """Return the stats of an AsyncLLM.

    Args:
        num_answered: of the requests, answered with tokens since the start.
    """
    if fast_paths.is_on("load"):
        with fast_paths.guarded("load", "an output processor that tells its requests"):
            stats = _read(engine, last_stats, is_answering=num_answered > 0)
            # What a heartbeat could not carry would end the worker.
            return msgspec.msgpack.decode(msgspec.msgpack.encode(stats), type=EngineStats)
    return EngineStats(running=num_requests, fast_paths=fast_paths.report())


def _read(engine: Any, last_stats: LastStats, *, is_answering: bool) -> EngineStats:
    processor, last, fixed = engine.output_processor, last_stats.value, _capacity(engine)
    if is_answering and last.steps is None and engine.logger_manager is not None:
        raise LookupError("no step was reported, and tokens came")
    # vLLM reports with each step; an idle engine makes none, so its last report is stale.
    unfinished = processor.get_num_unfinished_requests()
    waiting = min(last.waiting, unfinished)
    adapters: dict[str, tuple[str, ...]] = {}
    if unfinished and fixed["max_adapters"]:
        adapters = adapters_in_use(requests_of(engine), has_waiting=waiting > 0)
    times = RequestTimes()
    if isinstance(processor, OwnAnswers):
        times = processor.times
        times.keep({*processor.answers, *processor.request_states})  # type: ignore[attr-defined]
    return msgspec.structs.replace(
        last,
        preemptions=times.preemptions,
        queue_seconds=times.queue,
        prefill_seconds=times.prefill,
        decode_seconds=times.decode,
        # With those that its core has not got yet; if it never does, it hangs.
        running=unfinished - waiting,
        waiting=waiting,
        kv_cache_usage=last.kv_cache_usage if unfinished else 0.0,
        copies=last_stats.copies(compat.requests_of_copies(engine)),
        fast_paths=fast_paths.report(),
        **fixed,
        **adapters,
    )


def adapters_in_use(states: Iterable[Any], *, has_waiting: bool) -> dict[str, tuple[str, ...]]:
    """Return the fields of `EngineStats` about adapters.

    vLLM counts this by itself only together with what `OwnAnswers` leaves out.

    Args:
        states: what vLLM keeps of each request that runs or waits.
        has_waiting: whether any waits; which of those without a token it is, vLLM does not say.
    """
    running: set[str] = set()
    waiting: set[str] = set()
    for state in states:
        if state.lora_name is not None:
            among = waiting if has_waiting and state.is_prefilling else running
            among.add(state.lora_name)
    return {
        "running_adapters": tuple(sorted(running)),
        "waiting_adapters": tuple(sorted(waiting)),
    }


class _Copy:
    """Fields of the `EngineStats` of one copy of the model."""

    def __init__(self) -> None:
        self.steps = self.prompt_tokens_looked_up = self.prompt_tokens_cached = 0
        self.tokens_drafted = self.tokens_accepted = 0

    def take(self, stats: Any) -> None:
        """Take the SchedulerStats of a step."""
        self.steps += 1
        self.running, self.waiting = stats.num_running_reqs, stats.num_waiting_reqs
        self.kv_cache_usage = stats.kv_cache_usage
        if (cache := stats.prefix_cache_stats) is not None:
            self.prompt_tokens_looked_up += cache.queries
            self.prompt_tokens_cached += cache.hits
        if (drafts := stats.spec_decoding_stats) is not None:
            self.tokens_drafted += drafts.num_draft_tokens
            self.tokens_accepted += drafts.num_accepted_tokens


class _Logger:
    """What vLLM has in place of its counts for Prometheus, which nobody reads here.

    They cost a third of the Python of a step with one stream.
    """

    copies: dict[int, _Copy]

    def __init__(self, *_: Any, **__: Any) -> None:
        """Make no metrics."""

    def record(
        self, scheduler_stats: Any = None, *more: Any, engine_idx: int | None = None, **_: Any
    ) -> None:
        """Take vLLM's report of one step, which option.disable_log_stats keeps it from.

        Args:
            more: in 0.11 the last one is the number of the copy.
        """
        if scheduler_stats is None or not fast_paths.is_on("load"):
            return
        with fast_paths.guarded("load", "a scheduler's report that can be read"):
            number = more[-1] if engine_idx is None and more else engine_idx or 0
            reported = self.copies.get(number) or _Copy()
            reported.take(scheduler_stats)
            self.copies[number] = reported


def _do_nothing(*_: Any, **__: Any) -> None:
    """Count nothing."""
