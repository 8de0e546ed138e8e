"""How a request of vLLM's could be resumed."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.continuation import (
    Continuations,
    Continued,
    check_begun,
    current,
    resume_strategy_of,
)
from lmi_backend.errors import EngineError
from lmi_backend.generation import Continuation
from lmi_backend.token_ids import pack

SAMPLED: dict[str, Any] = {"n": 1, "output_kind": "delta", "temperature": 1.0, "seed": None}


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {"forced_tokens": "there is no core"})
    monkeypatch.setitem(vars(names), "RequestOutputKind", SimpleNamespace(DELTA="delta"))


def way(*, is_marking: bool = False, **params: Any) -> str:
    config = SimpleNamespace(watermark_config=object() if is_marking else None)
    engine = SimpleNamespace(vllm_config=config, model_config=SimpleNamespace())
    return resume_strategy_of(engine, SimpleNamespace(**SAMPLED | params))


@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        ({}, "from the prompt"),
        ({"frequency_penalty": 0.5}, ""),
        ({"frequency_penalty": 0.5, "seed": 7}, "from the start"),
        # vLLM 0.30 and 0.31 have this in each request, 0.32 has None there.
        ({"watermarking": True}, "from the prompt"),
        ({"watermarking": None}, "from the prompt"),
        ({"watermarking": False, "is_marking": True}, "from the prompt"),
        ({"watermarking": True, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True}, ""),
        ({"watermarking": None, "is_marking": True, "temperature": 0.0}, "from the start"),
    ],
)
def test_the_way_of_a_request(params: dict[str, Any], resumes: str) -> None:
    assert way(**params) == resumes


class Core:
    """The client of a core, whose argument has another name."""

    def __init__(self) -> None:
        self.added: list[Any] = []

    async def add_request_async(self, core_request: Any, urgent: bool = False) -> None:
        self.added.append((core_request, urgent))


class Processor:
    def __init__(self) -> None:
        self.request_states: dict[str, Any] = {}
        self.seen: list[Any] = []

    def process_outputs(self, core_outputs: Any, timestamp: float = 0.0) -> float:
        self.seen.append(core_outputs)
        return timestamp


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_request_is_handed_on_as_it_was_given(*, is_named: bool) -> None:
    core = Core()
    engine: Any = SimpleNamespace(engine_core=core, output_processor=Processor())
    Continuations(engine).attach()
    request = SimpleNamespace(sampling_params=None)
    if is_named:
        await core.add_request_async(urgent=True, core_request=request)
    else:
        await core.add_request_async(request, True)
    assert core.added == [(request, True)]


def test_outputs_that_are_no_list_end_what_repeats_and_nothing_else() -> None:
    core, processor = Core(), Processor()
    errors: list[Exception] = []
    queue = SimpleNamespace(put=errors.append)
    processor.request_states["a"] = SimpleNamespace(queue=queue)
    continuations = Continuations(SimpleNamespace(engine_core=core, output_processor=processor))
    continuations._repeated["a"] = [1, 2]
    given = SimpleNamespace(outputs=[])
    assert continuations._process_others(core_outputs=given, timestamp=2.0) == 2.0
    assert processor.seen == [given]
    assert [type(each) for each in errors] == [TypeError]
    assert not fast_paths.is_on("resumption")


def test_tokens_that_are_repeated_may_come_in_any_sequence() -> None:
    processor = Processor()
    processor.request_states["a"] = SimpleNamespace(queue=None)
    engine = SimpleNamespace(engine_core=Core(), output_processor=processor)
    continuations = Continuations(engine)
    continuations._repeated["a"] = [1, 2]
    output = SimpleNamespace(
        request_id="a", new_token_ids=(1, 2, 3), new_logprobs=None, finish_reason=None
    )
    continuations._process_others([output])
    assert processor.seen == [[output]]
    assert output.new_token_ids == (3,)


def test_a_core_that_does_not_generate_what_is_forced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    errors: list[Exception] = []
    processor = Processor()
    processor.request_states["a"] = SimpleNamespace(queue=SimpleNamespace(put=errors.append))
    engine = SimpleNamespace(
        engine_core=Core(),
        output_processor=processor,
        vllm_config=SimpleNamespace(speculative_config=None),
    )
    continuations = Continuations(engine)
    continuations._repeated["a"] = [1, 2, 3]
    output = SimpleNamespace(request_id="a", new_token_ids=[1, 5], finish_reason=None)
    continuations._process_others([output])
    assert "comes out otherwise" in str(errors)
    assert "[1, 5] instead of [1, 2]" in fast_paths.states()["forced_tokens"]
    assert fast_paths.is_on("resumption")


class Params(msgspec.Struct):
    """Has what vLLM's have, and what no release had that was run."""

    n: int = 1
    output_kind: str = "delta"
    temperature: float = 1.0
    seed: int | None = None
    dry_multiplier: float = 0.0
    _eos_token_id: int | None = None


@pytest.mark.parametrize(
    ("params", "resumes"),
    [
        (Params(), "from the prompt"),
        (Params(_eos_token_id=2), "from the prompt"),
        (Params(dry_multiplier=0.8), ""),
        (Params(dry_multiplier=0.8, seed=7), "from the start"),
    ],
)
def test_an_unknown_parameter_may_tell_generated_tokens_from_a_prompt(
    params: Params, resumes: str
) -> None:
    engine = SimpleNamespace(vllm_config=None, model_config=SimpleNamespace())
    assert resume_strategy_of(engine, params) == resumes


class Frozen(msgspec.Struct, frozen=True):
    """An output of a release that lets nobody change it."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    new_prompt_logprobs_tensors: Any = None
    finish_reason: Any = None


def test_what_is_repeated_is_taken_from_an_output_that_cannot_be_changed() -> None:
    processor = Processor()
    processor.request_states["a"] = SimpleNamespace(queue=None)
    continuations = Continuations(SimpleNamespace(engine_core=Core(), output_processor=processor))
    continuations._repeated["a"] = [1, 2]
    continuations._process_others([Frozen("a", [1])])
    continuations._process_others([Frozen("a", [2, 3])])
    assert processor.seen == [[], [Frozen("a", [3])]]


def test_a_request_that_was_not_seen_on_its_way_begins_anew_and_fails() -> None:
    """A core's client may be another object each time that it is asked for."""
    check_begun()
    continued = Continued(Continuation(b""))
    token = current.set(continued)
    try:
        with pytest.raises(EngineError, match="cannot resume"):
            check_begun()
        assert not fast_paths.is_on("resumption")
        continued.is_begun = True
        check_begun()
    finally:
        current.reset(token)


class Interval(Processor):
    """Makes outputs of a request as vLLM does, which streams several tokens at once."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[list[int]] = []
        self.state = SimpleNamespace(
            stream_interval=4, sent_tokens_offset=0, logprobs_processor=None, queue=self
        )
        self.request_states["a"] = self.state
        self._tokens: list[int] = []

    def process_outputs(self, core_outputs: Any, timestamp: float = 0.0) -> float:
        for output in core_outputs:
            self._tokens += output.new_token_ids
        sent = self.state.sent_tokens_offset
        if sent and len(self._tokens) - sent < self.state.stream_interval:
            return timestamp
        if self.state.stream_interval > 1:
            self.made.append(self._tokens[sent:])
            self.state.sent_tokens_offset = len(self._tokens)
        else:
            self.made.append(output.new_token_ids)
        return timestamp

    def get_nowait(self) -> Any:
        return self.made.pop() if self.made else None


def test_what_is_known_is_not_sent_again_with_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "EngineCoreOutput", SimpleNamespace)
    processor = Interval()
    engine = SimpleNamespace(output_processor=processor)
    continued = Continued(Continuation(b"".join(pack([token]) for token in (1, 2, 3))))
    continued._replay_all(engine, processor.state, SimpleNamespace(request_id="a"))
    assert list(continued.outputs) == [[1], [2], [3]]
    processor.process_outputs([SimpleNamespace(new_token_ids=[4, 5, 6, 7])])
    assert processor.made == [[4, 5, 6, 7]]
