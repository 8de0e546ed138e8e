"""New tokens pass vLLM's processor where it has nothing else to do, and reach it in order."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens, first_parameter
from lmi_backend.engines.vllm.inside.token_reader import read_tokens


class Output(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """An EngineCoreOutput of vLLM 0.32, as far as it matters here."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    finish_reason: str | None = None
    routed_experts: Any = None
    num_nans_in_logits: int = 0
    phase: Any = None
    """Of no release."""


class Array:
    """Compares as one of numpy's does that has more than one element."""

    def __eq__(self, other: object) -> "Array":  # type: ignore[override]
        return self

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        raise ValueError("The truth value of an array with more than one element is ambiguous")


class Detokenizer:
    def __init__(self, stop: list[str]) -> None:
        self.stop = stop
        self.decoded: list[list[int]] = []

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> None:
        assert new_token_ids
        assert not stop_terminated
        if -1 in new_token_ids:
            raise RuntimeError("no such token")
        self.decoded.append(new_token_ids)


class Processor:
    """The OutputProcessor: decodes what it gets."""

    def __init__(self, *, log_stats: bool = False) -> None:
        self.log_stats = log_stats
        self.request_states: dict[str, Any] = {}
        self.versions: list[Any] = []

    def process_outputs(
        self,
        engine_core_outputs: list[Output],
        engine_core_timestamp: float | None = None,
        iteration_stats: Any = None,
        weight_version: str | None = None,
    ) -> str:
        self.versions.append(weight_version)
        for output in engine_core_outputs:
            if (state := self.request_states.get(output.request_id)) is not None:
                state.detokenizer.update(output.new_token_ids, False)
        return "processed"

    def add(self, request_id: str, *stop: str) -> Any:
        state = SimpleNamespace(detokenizer=Detokenizer([*stop]), errors=[])
        state.queue = SimpleNamespace(put=state.errors.append)
        self.request_states[request_id] = state
        return state


@pytest.fixture
def processor() -> Processor:
    processor = Processor()
    NewTokens(SimpleNamespace(output_processor=processor), Output("", [])).attach()
    return processor


def step(processor: Processor, *outputs: Output, version: str = "default") -> None:
    assert processor.process_outputs([*outputs], 0.0, None, weight_version=version) == "processed"


def test_tokens_of_the_middle_are_decoded_together(processor: Processor) -> None:
    state, taken = processor.add("a"), []
    reader = read_tokens(state, taken.extend)
    for token in range(4):
        step(processor, Output("a", [token]))
    # vLLM sees the first: what it notes of a request has begun.
    assert (taken, state.detokenizer.decoded) == ([1, 2, 3], [[0]])
    reader.decode()
    reader.decode()
    assert state.detokenizer.decoded == [[0], [1, 2, 3]]


@pytest.mark.parametrize(
    "more",
    [
        {"finish_reason": "stop"},
        {"new_logprobs": ((1,),)},
        {"num_nans_in_logits": 1},
        {"routed_experts": Array()},
    ],
)
def test_what_tells_more_is_vllms_after_all_before(
    processor: Processor, more: dict[str, Any]
) -> None:
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for output in (Output("a", [0]), Output("a", [1]), Output("a", [2], **more), Output("a", [3])):
        step(processor, output)
    assert (taken, state.detokenizer.decoded) == ([1, 3], [[0], [1], [2]])


def test_a_new_version_of_the_weights_is_noted_where_it_begins(processor: Processor) -> None:
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token, version in enumerate(("1", "1", "2", "2")):
        step(processor, Output("a", [token]), version=version)
    assert (taken, state.detokenizer.decoded) == ([1, 3], [[0], [1], [2]])
    assert processor.versions == ["1", "1", "2", "2"]


@pytest.mark.parametrize("named", [{}, {"policy": 1}])
def test_what_comes_with_outputs_is_noted_under_any_name(named: dict[str, Any]) -> None:
    """A release may give the version by its place, or call it otherwise."""

    class Other(Processor):
        def process_outputs(
            self, engine_core_outputs: list[Output], *noted: Any, policy: Any = None
        ) -> str:
            return super().process_outputs(engine_core_outputs)

    processor = Other()
    NewTokens(SimpleNamespace(output_processor=processor), Output("", [])).attach()
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token, version in enumerate((1, 1, 2, 2)):
        place, by_name = ((0.0, None), {"policy": version}) if named else ((0.0, None, version), {})
        processor.process_outputs([Output("a", [token])], *place, **by_name)
    assert (taken, state.detokenizer.decoded) == ([1, 3], [[0], [1], [2]])


def test_what_comes_anew_with_each_output_is_said(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token in range(5):
        step(processor, Output("a", [token]), version=f"{token}")
    assert (taken, len(state.detokenizer.decoded)) == ([], 5)
    assert "'weight_version': '4'" in fast_paths.states()["new_tokens"]


def test_requests_with_stop_strings_and_those_nobody_reads_are_vllms(processor: Processor) -> None:
    stopped, unread, taken = processor.add("stopped", "x"), processor.add("unread"), []
    read_tokens(stopped, taken.extend)
    for token in range(3):
        step(processor, Output("stopped", [token]), Output("unread", [token]), Output("gone", [9]))
    assert taken == []
    assert stopped.detokenizer.decoded == unread.detokenizer.decoded == [[0], [1], [2]]


def test_what_cannot_be_decoded_ends_its_request_alone(processor: Processor) -> None:
    state, other, taken = processor.add("a"), processor.add("b"), []
    reader = read_tokens(state, taken.extend)
    read_tokens(other, taken.extend)
    for token in (0, -1):
        step(processor, Output("a", [token]), Output("b", [token]))
    reader.decode()
    assert [str(error) for error in state.errors] == ["no such token"]
    assert other.errors == []


def test_tokens_that_cannot_be_taken_end_their_request_alone(processor: Processor) -> None:
    def refuse(ids: Any) -> None:
        raise RuntimeError("no place")

    state, other, taken = processor.add("a"), processor.add("b"), []
    read_tokens(state, refuse)
    read_tokens(other, taken.extend)
    for token in range(3):
        step(processor, Output("a", [token]), Output("b", [token]))
    assert [str(error) for error in state.errors] == ["no place", "no place"]
    assert taken == [1, 2]


def test_vllm_sees_all_where_it_counts_for_its_own_metrics() -> None:
    processor = Processor(log_stats=True)
    before = processor.process_outputs
    with pytest.raises(TypeError, match="vLLM counts each of them"):
        NewTokens(SimpleNamespace(output_processor=processor), Output("", [])).attach()
    assert processor.process_outputs == before


@pytest.mark.parametrize(
    ("more", "came"),
    [
        ({"phase": "decode"}, "phase: 'decode'"),
        ({"phase": Array()}, "phase: <"),
        # What a request wants, and others may not.
        ({"num_nans_in_logits": 1}, ""),
        ({"routed_experts": Array()}, ""),
    ],
)
def test_a_member_that_no_release_had_is_said_where_it_is_in_all_outputs(
    processor: Processor, more: dict[str, Any], came: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token in range(5):
        assert fast_paths.is_on("new_tokens")
        step(processor, Output("a", [token], **more))
    assert (taken, state.detokenizer.decoded) == ([], [[0], [1], [2], [3], [4]])
    assert fast_paths.is_on("new_tokens") is not bool(came)
    assert came in fast_paths.states()["new_tokens"]


def test_outputs_of_another_thread_are_vllms(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    with ThreadPoolExecutor(1) as pool:
        for token in range(3):
            pool.submit(step, processor, Output("a", [token])).result()
    assert (taken, state.detokenizer.decoded) == ([], [[0], [1], [2]])
    assert "another thread" in fast_paths.states()["new_tokens"]


class OlderOutput(Output):
    """That of 0.11 to 0.21."""

    num_cached_tokens: int = 0


def test_what_each_output_of_an_older_release_says_of_the_prompt_is_vllms_once() -> None:
    processor = Processor()
    plain = OlderOutput("", [])
    NewTokens(SimpleNamespace(output_processor=processor), plain).attach()
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token in range(3):
        step(processor, OlderOutput("a", [token], num_cached_tokens=16))
    assert (taken, state.detokenizer.decoded) == ([1, 2], [[0]])


def test_outputs_that_no_longer_compare_come_after_what_was_taken(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strange:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compares with its kind only")

        __hash__ = None  # type: ignore[assignment]

    monkeypatch.setattr(fast_paths, "_off", {})
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for output in (Output("a", [0]), Output("a", [1]), Output("a", [2], phase=Strange())):
        step(processor, output)
    assert (taken, state.detokenizer.decoded) == ([1], [[0], [1], [2]])
    assert "compares with its kind only" in fast_paths.states()["new_tokens"]


def test_a_stand_in_is_given_what_it_stands_in_for_by_the_same_name() -> None:
    def add_request(core_request: Any) -> None: ...

    class StandIn:
        def __init__(self) -> None:
            self.first_parameters = {"add": first_parameter(add_request)}

        def add(self, *given: Any, **named: Any) -> None: ...

    assert first_parameter(StandIn().add) == first_parameter(add_request) == "core_request"


def test_outputs_that_are_given_by_name_are_handed_on_by_name(processor: Processor) -> None:
    state, taken = processor.add("a"), []
    read_tokens(state, taken.extend)
    for token in range(3):
        given = {"engine_core_outputs": [Output("a", [token])], "weight_version": "default"}
        assert processor.process_outputs(**given) == "processed"
    assert (taken, state.detokenizer.decoded) == ([1, 2], [[0]])


def test_outputs_that_are_no_list_are_vllms(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    given: Any = SimpleNamespace(outputs=[Output("a", [1])])
    with pytest.raises(TypeError, match="not iterable"):  # of vLLM's own function here
        processor.process_outputs(given)
    assert processor.versions == [None]
    assert not fast_paths.is_on("new_tokens")


class IncrementalDetokenizer:
    """vLLM's base class, for a request that wants no text."""


def test_stop_strings_that_cannot_be_seen_are_vllms(processor: Processor) -> None:
    """A release may call them otherwise; then each token is decoded as it comes."""
    for detokenizer, is_read in (
        (SimpleNamespace(stop_words=[]), False),
        (IncrementalDetokenizer(), True),
    ):
        state = SimpleNamespace(detokenizer=detokenizer)
        read_tokens(state, [].extend)
        assert hasattr(state, "lmi_token_reader") is is_read
