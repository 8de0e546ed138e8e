"""Whose an output of the core is, and what becomes of the engine's own counts."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_backend.engines.vllm import answers, fast_paths, names, processor, resume
from lmi_backend.engines.vllm.answers import Generation
from lmi_backend.engines.vllm.processor import LastStats, read_stats
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, OutputProcessor, Sink
from tests.unit.engines.vllm.vllm_parts import (
    PROMPT,
    Collector,
    FinishReason,
    Kind,
    Output,
    Params,
    Request,
)

pytestmark = pytest.mark.usefixtures("vllm")


class Maker:
    """Leaves pieces as they are; some texts cannot be made chunks of."""

    is_whole = writes_prefix = False

    def begin(self, prompt_ids: Any, num_prompt_tokens: int) -> None:
        """Note nothing."""

    def chunk(self, piece: Any) -> Any:
        """Return the piece."""
        if "X" in piece.text:
            raise ValueError(piece.text)
        return piece

    @staticmethod
    def failure(num_tokens: int) -> Exception:
        """Return an error."""
        return RuntimeError(f"failed after {num_tokens}")


def ours(engine: AsyncLLM, name: str, **params: Any) -> tuple[Generation, Sink]:
    """Add a request of ours."""
    sink = Sink()
    generation = Generation(engine, cast(Any, Maker()), sink, None)
    token = answers.current_generation.set(generation)
    engine.output_processor.add_request(Request(name, sampling_params=Params(**params)), None)
    answers.current_generation.reset(token)
    return generation, sink


def theirs(engine: AsyncLLM, name: str, **params: Any) -> Collector:
    """Add a request of vLLM's."""
    queue = Collector(Kind.DELTA, name)
    request = Request(name, sampling_params=Params(**params))
    engine.output_processor.add_request(request, None, None, 0, queue)
    return queue


def texts(sink: Sink) -> list[str]:
    return [each.text for each in sink.taken]


async def test_each_output_is_processed_once_and_in_order() -> None:
    engine = AsyncLLM()
    (_, sink), queue = ours(engine, "a"), theirs(engine, "b")
    steps = [Output("b", [65]), Output("a", [66]), Output("gone", [67]), Output("b", [68])]
    engine.step(*steps)
    engine.step(Output("a", [69]), Output("b", [70], finish_reason=FinishReason.LENGTH))
    assert texts(sink) == ["B", "E"]
    assert queue.output.outputs[0].text == "ADF"
    assert [each.request_id for each in engine.output_processor.seen] == ["b", "gone", "b", "b"]


async def test_the_core_is_told_of_the_ends_that_it_does_not_know() -> None:
    engine = AsyncLLM()
    stopped, failed, ended, error = (
        ours(engine, "stopped", stop=["B"]), ours(engine, "failed"),
        ours(engine, "ended", stop=["B"]), ours(engine, "error"),
    )  # fmt: skip
    theirs(engine, "theirs", stop=["B"])
    engine.step(
        Output("theirs", [66]),
        Output("stopped", [66]),
        Output("failed", [88]),
        Output("ended", [65], finish_reason=FinishReason.LENGTH),
        Output("error", [65], finish_reason=FinishReason.ERROR),
    )
    # What fails while it is sent is aborted by the task of its request.
    assert engine.engine_core.aborted == ["theirs", "stopped"]
    await ended[0].ended
    await stopped[0].ended
    for (generation, _), text in ((failed, "X"), (error, "failed after 0")):
        with pytest.raises((ValueError, RuntimeError), match=text):
            await generation.ended


async def test_what_cannot_be_decoded_fails_alone_and_is_aborted() -> None:
    engine = AsyncLLM()
    (bad, _), (_, sink) = ours(engine, "a", stop=["x"]), ours(engine, "b", stop=["x"])
    engine.step(Output("a", [999]), Output("b", [65]))
    assert isinstance(bad.ended.exception(), KeyError)
    assert engine.engine_core.aborted == ["a"]
    assert texts(sink) == ["A"]


async def test_what_is_recorded_stays_where_vllm_merges_outputs() -> None:
    engine = AsyncLLM()
    engine.output_processor.recorded = [], outputs = [], []
    queue = theirs(engine, "a")
    engine.step(Output("a", [65]))
    queue.output.outputs[0].token_ids.extend([66])  # as RequestOutput.add does
    assert outputs[0].new_token_ids == [65]


async def test_outputs_of_pooling_come_as_they_are() -> None:
    engine = AsyncLLM()
    request, queue = Request("a", sampling_params=None), Collector(Kind.DELTA, "a")
    engine.output_processor.add_request(request, None, None, 0, queue)
    assert type(queue) is Collector


def test_a_queue_of_another_kind_is_found_before_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "RequestOutputCollector", SimpleNamespace)
    with pytest.raises(TypeError, match="SimpleNamespace has no get, get_nowait, put"):
        processor.attach(AsyncLLM(is_attached=False))


async def test_a_dead_core_fails_all() -> None:
    engine = AsyncLLM()
    (generation, _), queue = ours(engine, "a"), theirs(engine, "b")
    error = RuntimeError("the core is dead")
    engine.output_processor.propagate_error(error)
    assert (generation.ended.exception(), queue.output) == (error, error)
    assert engine.output_processor.answers == {}


async def test_open_requests_are_counted() -> None:
    engine = AsyncLLM()
    kept = engine.output_processor
    assert not kept.has_unfinished_requests()
    ours(engine, "a")
    assert kept.has_unfinished_requests()
    theirs(engine, "b")
    assert kept.get_num_unfinished_requests() == 2
    assert kept.get_num_queued_tokens() == 2 * len(PROMPT)
    engine.step(Output("a", [65]))
    assert kept.get_num_queued_tokens() == len(PROMPT)
    engine.step(Output("a", [65], finish_reason=FinishReason.STOP))
    assert kept.get_num_unfinished_requests() == 1


def processors() -> list[Any]:
    """Return processors that cannot be used: two of other kinds, and one that has begun."""
    begun = OutputProcessor()
    begun.request_states["a"] = cast(Any, None)
    renamed = SimpleNamespace(add_request=print, process=print, request_states={})
    return [SimpleNamespace(), renamed, begun]


@pytest.mark.parametrize(
    ("found", "why"),
    [*zip(processors(), ("request_states", "process_outputs", "already"), strict=True)],
)
def test_another_processor_is_refused_and_stays(found: Any, why: str) -> None:
    kind = type(found)
    engine = SimpleNamespace(output_processor=found, vllm_config=None)
    with pytest.raises((AttributeError, TypeError, RuntimeError), match=why):
        processor.attach(engine)
    assert type(found) is kind
    assert not isinstance(engine.output_processor, processor.OwnAnswers)


def test_the_processor_stays_the_object_that_vllms_handler_has() -> None:
    engine = AsyncLLM(is_attached=False)
    before = engine.output_processor
    processor.attach(engine)
    assert isinstance(engine.output_processor, processor.OwnAnswers)
    assert engine.output_processor is before
    assert isinstance(before, OutputProcessor)


@pytest.mark.parametrize("add", [ours, theirs])
async def test_ids_that_a_client_forces_are_removed(add: Any) -> None:
    extra: dict[str, Any] = {"other": 1}
    params = SimpleNamespace(extra_args=extra)
    params.extra_args = resume.forced_args(params, [10**9])
    add(AsyncLLM(), "a", extra_args=params.extra_args)
    assert params.extra_args == {"other": 1}


@pytest.mark.parametrize(
    ("endpoint", "is_counted", "counts"),
    [(None, False, None), ("http://collector", False, "counts"), (None, True, "counts")],
)
def test_tokens_are_counted_only_for_an_option_that_tells_them(
    endpoint: str | None, counts: str | None, *, is_counted: bool
) -> None:
    engine = AsyncLLM(is_attached=False)
    engine.vllm_config.observability_config = SimpleNamespace(otlp_traces_endpoint=endpoint)
    processor.attach(engine, is_counted=is_counted)
    engine.output_processor.process_outputs([], 0.0, "counts")
    assert engine.output_processor.counts == counts


def events(**times: float) -> list[SimpleNamespace]:
    """Return events of a core, by their kinds."""
    made = times.items()
    return [SimpleNamespace(type=SimpleNamespace(name=name), timestamp=at) for name, at in made]


def step(engine: AsyncLLM, now: float, *outputs: Output) -> None:
    engine.output_processor.process_outputs(list(outputs), now)


async def test_the_parts_of_each_requests_time_are_counted() -> None:
    engine = AsyncLLM()
    ours(engine, "a", stop=["B"])
    theirs(engine, "b")
    times = engine.output_processor.times
    step(
        engine,
        13.0,
        Output("a", [65], events=events(QUEUED=10.0, SCHEDULED=11.0)),
        Output("b", [65], events=events(QUEUED=10.0, SCHEDULED=12.0)),
    )
    assert (times.queue.total, times.prefill.total, times.decode.count) == (3.0, 3.0, 0)
    again = Output("b", [66], events=events(PREEMPTED=13.5, SCHEDULED=14.0))
    step(engine, 15.0, again)
    # A stop string ends what the core does not know to have ended.
    step(engine, 16.0, Output("a", [66]), Output("b", [67], finish_reason=FinishReason.STOP))
    assert (times.queue.count, times.preemptions) == (2, 1)
    assert (times.decode.total, times.decode.count) == (6.0, 2)


async def test_times_of_requests_that_are_aborted_are_forgotten() -> None:
    engine = AsyncLLM()
    ours(engine, "a")
    times = engine.output_processor.times
    step(engine, 3.0, Output("a", [65], events=events(QUEUED=1.0, SCHEDULED=2.0)))
    times.keep(set())
    step(engine, 4.0, Output("a", [66], finish_reason=FinishReason.STOP))
    assert times.decode.count == 0


async def test_events_of_another_kind_end_no_request() -> None:
    engine = AsyncLLM()
    (_, sink) = ours(engine, "a")
    step(engine, 3.0, Output("a", [65], events=[object()]))
    assert texts(sink) == ["A"]
    assert not fast_paths.is_on("load")


CONFIG = SimpleNamespace(
    cache_config=SimpleNamespace(block_size=16, num_gpu_blocks=10),
    lora_config=SimpleNamespace(max_loras=2),
)


def _engine(state: dict[str, Any], unfinished: Any = 1) -> Any:
    processor = SimpleNamespace(
        get_num_unfinished_requests=lambda: unfinished,
        request_states={"0": SimpleNamespace(**state)},
    )
    return SimpleNamespace(
        output_processor=processor,
        logger_manager=None,
        engine_core=SimpleNamespace(),
        vllm_config=CONFIG,
    )


def _read(engine: Any, num_answered: int = 0) -> Any:
    return read_stats(engine, LastStats(), num_requests=3, num_answered=num_answered)


def test_answers_of_our_own_are_counted_as_vllms_requests_are() -> None:
    engine = _engine({"lora_name": "red", "is_prefilling": False}, unfinished=2)
    ours = SimpleNamespace(lora_name="blue", is_prefilling=True)
    engine.output_processor.answers = {"1": ours}
    stats = _read(engine)
    assert (stats.running, stats.running_adapters) == (2, ("blue", "red"))


@pytest.mark.parametrize(
    "engine",
    [
        _engine({"lora_name": lambda: "red", "is_prefilling": False}),
        _engine({"lora_name": ("red", None), "is_prefilling": False}),
        _engine({"is_prefilling": False}),
        _engine({"lora_name": None, "is_prefilling": False}, unfinished=(1, None)),
        _engine({"lora_name": None, "is_prefilling": False}, unfinished=0.5),
    ],
)
def test_what_no_heartbeat_can_carry_is_counted_by_the_worker(engine: Any) -> None:
    stats = _read(engine)
    assert (stats.running, stats.running_adapters) == (3, ())
    assert not fast_paths.is_on("load")
