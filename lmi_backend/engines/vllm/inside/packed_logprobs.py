"""Leave the log probabilities of vLLM's outputs packed until somebody reads them.

Its client makes three arrays of numpy for each output. Most are of a single token, whose numbers
stand at known places in what the core has sent.
"""

from __future__ import annotations

from itertools import product
from struct import Struct, error
from typing import Any, Final, NamedTuple

import msgspec

from lmi_backend.engines.vllm.inside import fast_paths, names
from lmi_backend.engines.vllm.inside.new_tokens import first_parameter

NAME: Final = "packed_logprobs"
_LETTERS: Final = {"i4": "i", "i8": "q", "f4": "f"}
"""Of `struct`, by the types of numpy."""
_TOKEN: Final = 0x01020304
_LOGPROB: Final = -0.3
_RANK: Final = 0x05060708
"""Numbers that stand nowhere else in what is packed to learn from."""
_ARRAY: Final = 0x90
"""Of MessagePack: the first byte of an array of a few elements, whose number is added."""

Packed = tuple[msgspec.Raw, ...]
"""The members of vLLM's LogprobsLists."""


class _Layout(NamedTuple):
    """How the log probability of one token is packed."""

    packed: Struct
    around: tuple[bytes, ...]
    """What is before, between and behind its three numbers."""

    def read(self, data: bytes) -> tuple[int, float, int] | None:
        """Return id, log probability and rank; None for what is packed otherwise."""
        try:
            found = self.packed.unpack(data)
        except error:  # of another size
            return None
        return (found[1], found[3], found[5]) if found[::2] == self.around else None


class PackedLogprobs:
    """Has the client of an AsyncLLM leave log probabilities packed, and reads them.

    It must be attached before anything else that takes outputs past vLLM's output processor.

    Args:
        engine: the AsyncLLM. Its core is another process.

    Raises:
        Exception: this vLLM packs them otherwise.
    """

    def __init__(self, engine: Any) -> None:
        self._packer, self._processor = engine.engine_core.decoder, engine.output_processor
        self._theirs = self._packer.decoder
        hooks = {"ext_hook": self._theirs.ext_hook, "dec_hook": self._theirs.dec_hook}
        kinds = {each.name: each.type for each in msgspec.structs.fields(names.EngineCoreOutput)}
        self._lists = msgspec.msgpack.Decoder(kinds["new_logprobs"], **hooks)
        self.output = _changed(names.EngineCoreOutput, "new_logprobs", Packed | None, None)
        """The class of the client's outputs from now on."""
        default: Any = msgspec.field(default_factory=list)
        outputs = _changed(names.EngineCoreOutputs, "outputs", list[self.output], default)  # type: ignore[name-defined]
        self._ours = msgspec.msgpack.Decoder(outputs, **hooks)
        self._layouts = [self._learn(*types) for types in product(("i4", "i8"), repeat=2)]
        self._unpack, self._around = self._layouts[0].packed.unpack, self._layouts[0].around
        """Of the latest one."""
        self._process = self._processor.process_outputs
        self._parameter = first_parameter(self._process)
        self.first_parameters = {self._process_others.__name__: self._parameter}

    def attach(self) -> None:
        """Leave them packed from now on."""
        self._processor.process_outputs = self._process_others
        self._packer.decoder = self

    def decode(self, data: Any) -> Any:
        """Return the outputs of a message of the core, in the place of vLLM's own decoder."""
        if fast_paths.is_on(NAME):
            try:
                # Large arrays are beside it, and known for as long as this takes.
                if len(self._packer.aux_buffers) <= 1:
                    return self._ours.decode(data)
            except Exception as problem:  # noqa: BLE001  vLLM's loop would end with all requests
                came = f"{type(problem).__name__}: {problem}"
                fast_paths.turn_off(NAME, "messages that a core sends", came)
        return self._theirs.decode(data)

    def alone(self, packed: Packed) -> tuple[int, float, int] | None:
        """Return id, log probability and rank of a token that is alone; None for what is more."""
        data = b"".join(packed)
        # As a rule all are packed in one way: this is the whole of it, without a call for each.
        try:
            found = self._unpack(data)
        except error:
            return self._tried(data)
        return (found[1], found[3], found[5]) if found[::2] == self._around else self._tried(data)

    def _tried(self, data: bytes) -> tuple[int, float, int] | None:
        """Return the same by any layout."""
        for layout in self._layouts:
            if (found := layout.read(data)) is not None:
                self._unpack, self._around = layout.packed.unpack, layout.around
                return found
        return None

    def lists(self, given: Any) -> Any:
        """Return vLLM's LogprobsLists, or None, of what an output has."""
        if type(given) is not tuple:
            return given
        return self._lists.decode(b"".join((bytes((_ARRAY + len(given),)), *given)))

    def _process_others(self, *given: Any, **named: Any) -> Any:
        for output in given[0] if given else named[self._parameter]:
            output.new_logprobs = self.lists(output.new_logprobs)
        return self._process(*given, **named)

    def _learn(self, of_token: str, of_rank: str) -> _Layout:
        """Return how a token is packed whose numbers have these types.

        Raises:
            ValueError: it is not the same when it is read.
        """
        packed = self._packed(of_token, of_rank)
        form, around, rest = "<", [], b"".join(packed)
        for kind, number in ((of_token, _TOKEN), ("f4", _LOGPROB), (of_rank, _RANK)):
            before, found, rest = rest.partition(Struct(f"<{_LETTERS[kind]}").pack(number))
            if not found:
                raise ValueError(f"{number} is not in {packed}")
            around.append(before)
            form += f"{len(before)}s{_LETTERS[kind]}"
        layout, theirs = _Layout(Struct(f"{form}{len(rest)}s"), (*around, rest)), self.lists(packed)
        values = theirs.logprob_token_ids, theirs.logprobs, theirs.sampled_token_ranks
        if (read := layout.read(b"".join(packed))) != tuple(each.item() for each in values):
            raise ValueError(f"{read} and not {theirs}")
        return layout

    def _packed(self, of_token: str, of_rank: str) -> Packed:
        """Return a token's log probability as vLLM's core packs it.

        Raises:
            ValueError: an output is another one when it is read.
        """
        import numpy as np  # noqa: PLC0415  vLLM has it

        values = np.array([[_TOKEN]], of_token), np.array([[_LOGPROB]], "f4")
        lists = names.LogprobsLists(*values, np.array([_RANK], of_rank))
        output = names.EngineCoreOutput(request_id="a", new_token_ids=[_TOKEN], new_logprobs=lists)
        outputs = names.EngineCoreOutputs(outputs=[output])
        data = bytes(names.MsgpackEncoder().encode(outputs)[0])
        (ours,), (theirs,) = (each.decode(data).outputs for each in (self._ours, self._theirs))
        packed: Packed = ours.new_logprobs
        ours.new_logprobs = self.lists(packed)
        shown = [msgspec.to_builtins(each, enc_hook=repr) for each in (ours, theirs)]
        if shown[0] != shown[1]:
            raise ValueError(f"{shown[0]} and not {shown[1]}")
        return packed


def _changed(kind: Any, name: str, of: Any, default: Any) -> Any:
    """Return a class of vLLM's structs with another type of a member.

    Raises:
        TypeError: its members are not packed in the same order.
    """
    made = msgspec.defstruct(kind.__name__, [(name, of, default)], bases=(kind,))
    if made.__struct_fields__ != kind.__struct_fields__:
        raise TypeError(f"{kind.__name__} has its members in another order")
    return made


_in_use: list[PackedLogprobs] = []


def in_use() -> PackedLogprobs | None:
    """Return what reads those of this process's engine, if they come packed."""
    return _in_use[0] if _in_use else None


def attach(engine: Any) -> None:
    """Leave the log probabilities of an engine's outputs packed, if its core packs any.

    Raises:
        Exception: as `PackedLogprobs`.
    """
    if isinstance(engine.engine_core, names.AsyncMPClient):
        packed = PackedLogprobs(engine)
        packed.attach()
        _in_use[:] = [packed]
