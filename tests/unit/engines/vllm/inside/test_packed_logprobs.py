"""Log probabilities stay packed until they are read, where vLLM packs them as they are known."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from lmi_backend.engines.vllm.inside import fast_paths, names, packed_logprobs
from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs
from lmi_backend.engines.vllm.inside.packed_logprobs import PackedLogprobs

VIEW = 3


class Lists(NamedTuple):
    """As vLLM's LogprobsLists."""

    logprob_token_ids: np.ndarray
    logprobs: np.ndarray
    sampled_token_ranks: np.ndarray
    cu_num_generated_tokens: list[int] | None = None


class Output(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """As vLLM's EngineCoreOutput."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Lists | None = None
    finish_reason: str | None = None


class Outputs(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """As vLLM's EngineCoreOutputs."""

    outputs: list[Output] = []


class Encoder:
    """As vLLM's MsgpackEncoder."""

    def encode(self, value: Any) -> list[bytes]:
        return [msgspec.msgpack.encode(value, enc_hook=self._packed)]

    def _packed(self, array: Any) -> Any:
        return array.dtype.str, array.shape, msgspec.msgpack.Ext(VIEW, array.tobytes())


class WideningEncoder(Encoder):
    """Packs numbers otherwise."""

    def _packed(self, array: Any) -> Any:
        return super()._packed(array.astype(np.float64))


class Decoder:
    """As vLLM's MsgpackDecoder."""

    def __init__(self) -> None:
        self.aux_buffers: Any = ()
        self.decoder: Any = msgspec.msgpack.Decoder(
            Outputs, ext_hook=lambda _, data: data, dec_hook=self._array
        )

    def _array(self, _: Any, given: Any) -> Any:
        kind, shape, data = given
        return np.frombuffer(self.aux_buffers[data] if type(data) is int else data, kind).reshape(
            shape
        )


class Processor:
    """As vLLM's OutputProcessor."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def process_outputs(self, engine_core_outputs: list[Any], timestamp: float = 0.0) -> None:
        self.given += engine_core_outputs


def lists(ids: Any, kind: Any = np.int32) -> Lists:
    values = np.full(np.shape(ids), -0.5, np.float32)
    return Lists(np.array(ids, kind), values, np.array([2] * len(ids), np.int32))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    return engine_of(monkeypatch)


def engine_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an AsyncLLM, as far as it matters here, in the place of vLLM's."""
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setattr(packed_logprobs, "_in_use", [])
    core = type("Core", (), {"decoder": Decoder()})
    theirs = {
        "AsyncMPClient": core, "EngineCoreOutput": Output, "EngineCoreOutputs": Outputs,
        "LogprobsLists": Lists, "MsgpackEncoder": Encoder,
    }  # fmt: skip
    for name, each in theirs.items():
        monkeypatch.setitem(vars(names), name, each)
    return SimpleNamespace(engine_core=core(), output_processor=Processor())


def step(engine: Any, *given: Any) -> list[Any]:
    """Return outputs with these log probabilities as the core's client has them."""
    outputs = [Output(f"{number}", [7], each) for number, each in enumerate(given)]
    found: list[Any] = engine.engine_core.decoder.decoder.decode(
        *Encoder().encode(Outputs(outputs))
    ).outputs
    return found


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_token_alone_is_read_where_it_stands(engine: Any, kind: Any) -> None:
    packed_logprobs.attach(engine)
    packed = packed_logprobs.in_use()
    assert packed is not None
    none, alone, with_others, several = step(
        engine, None, lists([[7]], kind), lists([[7, 8]]), lists([[7], [8]])
    )
    assert none.new_logprobs is None
    for _ in range(2):
        assert packed.alone(alone.new_logprobs) == (7, -0.5, 2)
    assert packed.alone(with_others.new_logprobs) is packed.alone(several.new_logprobs) is None
    # Where they are alike, so are the others' tokens.
    assert none == packed.output("0", [7])
    assert alone == packed.output("1", [7], alone.new_logprobs)


def test_what_vllm_processes_is_as_it_knows_it(engine: Any) -> None:
    packed_logprobs.attach(engine)
    given = lists([[7, 8]]), None, lists([[7]])
    engine.output_processor.process_outputs(step(engine, *given))
    engine.output_processor.process_outputs(engine_core_outputs=step(engine, *given))
    found = [each.new_logprobs for each in engine.output_processor.given]
    assert [type(each) for each in found] == [Lists, type(None), Lists] * 2
    assert found[3].logprob_token_ids.tolist() == [[7, 8]]


def test_log_probabilities_are_the_same_packed_and_not(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = SimpleNamespace(convert_ids_list_to_tokens=lambda _, ids: [f"{each} " for each in ids])
    monkeypatch.setitem(vars(names), "logprobs", texts)
    packed_logprobs.attach(engine)
    for wanted, ids, given in (
        (0, [7], [[7]]), (0, [7], [[7, 8]]), (1, [7], [[7, 8]]), (0, [7, 8], [[7], [8]]),
        (0, [9], [[7]]), (1, [9], [[7, 8]]),
    ):  # fmt: skip
        found = []
        for each in (lists(given), step(engine, lists(given))[0].new_logprobs):
            processor = SimpleNamespace(
                logprobs=[], cumulative_logprob=0.0, num_logprobs=wanted, tokenizer=texts
            )
            reader = NewLogprobs.of(SimpleNamespace(logprobs_processor=processor))
            assert reader is not None
            found.append((reader.read(ids, each), processor.logprobs, reader.cumulative))
        assert found[0] == found[1]
        assert (found[0][0] is None) == (ids == [9])


def test_large_arrays_are_read_while_they_are_there(engine: Any) -> None:
    decoder = engine.engine_core.decoder
    packed_logprobs.attach(engine)
    data = msgspec.msgpack.encode(
        Outputs([Output("0", [7], lists([[7]]))]),
        enc_hook=lambda array: (array.dtype.str, array.shape, 1),
    )
    decoder.aux_buffers = [data, np.array([7], np.int32).tobytes()]
    (output,) = decoder.decoder.decode(data).outputs
    assert type(output) is Output
    assert output.new_logprobs.logprob_token_ids.tolist() == [[7]]


def test_a_message_of_another_kind_is_vllms_from_then_on(
    engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    packed_logprobs.attach(engine)
    packed: Any = packed_logprobs.in_use()
    packed._ours = msgspec.msgpack.Decoder(int)
    for _ in range(2):
        assert type(step(engine, lists([[7]]))[0].new_logprobs) is Lists
    assert caplog.text.count("packed_logprobs") == 1


@pytest.mark.parametrize("buffers", [None, lambda: ()])
def test_buffers_of_another_kind_end_no_request(
    buffers: Any, engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM's loop ends with all requests where its decoder raises."""
    packed_logprobs.attach(engine)
    engine.engine_core.decoder.aux_buffers = buffers
    for _ in range(2):
        assert type(step(engine, lists([[7]]))[0].new_logprobs) is Lists
    assert caplog.text.count("packed_logprobs") == 1


def test_a_core_in_this_process_packs_nothing(engine: Any) -> None:
    engine.engine_core = SimpleNamespace()
    packed_logprobs.attach(engine)
    assert packed_logprobs.in_use() is None


def test_what_is_packed_otherwise_is_found_before_it_is_served(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(names), "MsgpackEncoder", WideningEncoder)
    with pytest.raises(ValueError, match="is not in"):
        PackedLogprobs(engine)
    assert isinstance(engine.engine_core.decoder.decoder, msgspec.msgpack.Decoder)
