"""Take the new tokens of a step past what vLLM does for each output.

vLLM's output processor looks at each field of each output, and has each token decoded as it comes.
In the middle of most answers an output has new tokens and nothing else. Nobody looks at their text
before some of them are sent together. Those tokens go to their sender, which has them decoded.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, idle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs

_EXPECTED: Final = "outputs whose new tokens alone can be told by comparing"
_ALONE: Final = "outputs with new tokens alone"
_OF_PROMPT: Final = ("num_cached_tokens", "num_external_computed_tokens")
"""Members that are the same in each output of a request, before 0.22; the first has told them."""
_LOOKED_AT: Final = 4
"""Outputs of the middle of a request that had more, before somebody looks what that is."""
_KNOWN: Final = frozenset(
    {
        "new_logprobs", "new_prompt_logprobs_tensors",
        "pooling_output", "finish_reason", "stop_reason", "events", "kv_transfer_params",
        "ec_transfer_params", "trace_headers", "prefill_stats", *_OF_PROMPT,
        "routed_experts", "num_nans_in_logits", "mm_cache_miss_hashes", "new_sampling_mask",
        "spec_decode_metrics", "prompt_token_id_logprobs",
    }
)  # fmt: skip
"""Members of the outputs of the releases that were run: they are the choice of some requests."""
_TEXTLESS: Final = "IncrementalDetokenizer"
_threads: Final[set[int]] = set()
"""Those of event loops, where readers were made."""
_READER: Final = "lmi_token_reader"
"""Member of a RequestState of vLLM: what is known of a request lives as long."""


class TokenReader:
    """Takes the new tokens of one request. `read_tokens` makes one."""

    def __init__(
        self,
        state: Any,
        take: Callable[..., None],
        prepare: Callable[[], None] | None = None,
        settle: Callable[[], None] | None = None,
        logprobs: NewLogprobs | None = None,
    ) -> None:
        self._state, self._take, self.logprobs = state, take, logprobs
        self._prepare = prepare
        self.settle = settle or self.decode
        """Called before vLLM gets an output: all that was taken comes before it."""
        self._undecoded: Sequence[int] = ()
        self.num_passed = 0
        """Outputs of its middle that were left to vLLM."""
        self.noted: Any = self
        """What vLLM has noted for the tokens to come; itself before it has seen any token."""

    def take(self, ids: Sequence[int], lists: Any) -> bool:
        """Take new tokens, which vLLM's detokeniser has not got; False if vLLM must read them.

        Args:
            ids: of the tokens.
            lists: vLLM's log probabilities of them; None where none are wanted.
        """
        if self._prepare is not None:
            self._prepare()
        if self.logprobs is None:
            # Most have none before: what is taken is decoded at once, then.
            self._undecoded = [*self._undecoded, *ids] if self._undecoded else ids
            self._take(ids)
            return True
        try:
            positions = self.logprobs.read(ids, lists)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off("new_tokens", _EXPECTED, f"{type(error).__name__}: {error}")
            return False
        if positions is None:
            return False
        self._undecoded = [*self._undecoded, *ids]
        self._take(ids, positions)
        return True

    def decode(self) -> None:
        """Give vLLM's detokeniser the tokens that it has not got; must be called before it is read.

        An exception of it fails the request.
        """
        if not self._undecoded:
            return
        ids, self._undecoded = self._undecoded, ()
        try:
            self._state.detokenizer.update(ids, False)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self._state.queue.put(error)


def read_tokens(
    state: Any,
    take: Callable[..., None],
    prepare: Callable[[], None] | None = None,
    settle: Callable[[], None] | None = None,
    logprobs: NewLogprobs | None = None,
) -> TokenReader:
    """Have the new tokens of a RequestState of vLLM taken, where nothing else looks at each.

    Stop strings do: it decodes such a request's tokens as before, and `take` gets none.

    Args:
        state: the request's.
        take: gets the ids of new tokens, and their log probabilities if those are read.
        prepare: called before each call of `take`.
        settle: called before vLLM gets an output; by default what was taken is decoded.
        logprobs: reads log probabilities; without it an output that has some is left to vLLM.
    """
    _threads.add(threading.get_ident())
    reader = TokenReader(state, take, prepare, settle, logprobs)
    if not _stops(state.detokenizer):
        setattr(state, _READER, reader)
    return reader


def leave(state: Any) -> None:
    """Leave the tokens that come next to vLLM; what was taken must be decoded."""
    if hasattr(state, _READER):
        setattr(state, _READER, None)


def _stops(detokenizer: Any) -> bool:
    """Tell whether a detokeniser of vLLM looks for stop strings, or may do so."""
    # vLLM's base class makes no text.
    return bool(getattr(detokenizer, "stop", type(detokenizer).__name__ != _TEXTLESS))


def first_parameter(function: Any) -> str:
    """Return the name of the first parameter of a function of vLLM, or of its stand-in here."""
    owner = getattr(function, "__self__", None)
    names: Mapping[str, str] = getattr(owner, "first_parameters", {})
    return names.get(function.__name__) or next(iter(inspect.signature(function).parameters))


class NewTokens:
    """Stands before the output processor of an AsyncLLM. `attach` puts it there.

    Args:
        engine: the AsyncLLM.
        plain: an EngineCoreOutput of this vLLM with new tokens and nothing else.
    """

    def __init__(self, engine: Any, plain: Any) -> None:
        self._processor, self._plain = engine.output_processor, plain
        self._process = self._processor.process_outputs
        self._parameter = first_parameter(self._process)
        """By which vLLM may give the outputs."""
        self.first_parameters = {self._process_others.__name__: self._parameter}
        self._usual = {self._parameter, "engine_core_timestamp", "iteration_stats"}
        self._of_prompt = [name for name in _OF_PROMPT if hasattr(plain, name)]
        self._noted: Any = None
        """What came with the outputs before."""
        self.num_taken = self._num_before = 0
        """Outputs that vLLM has not seen; and how many it had not at the last look."""
        self._passed = idle.PassedBy("new_tokens", _ALONE)

    def attach(self) -> None:
        """See all outputs from now on.

        Raises:
            TypeError: vLLM counts them for its own metrics, so it must see them.
        """
        if self._processor.log_stats:
            raise TypeError("vLLM counts each of them (log_stats)")
        self._processor.process_outputs = self._process_others

    def _process_others(self, *given: Any, **named: Any) -> Any:
        idle.note_use("new_tokens")
        if _threads and threading.get_ident() not in _threads:
            fast_paths.turn_off("new_tokens", idle.ONE_THREAD, "outputs of another thread")
            return self._process(*given, **named)
        try:
            outputs = given[0] if given else named[self._parameter]
            # The version of the weights, by any name.
            noted = given[3:], {name: named[name] for name in named if name not in self._usual}
            # The same object for as long as it is the same: it is compared with each output.
            if noted == self._noted:
                noted = self._noted
            self._noted = noted
            left = self._left(outputs, noted)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off(
                "new_tokens", "outputs in a list", f"{type(error).__name__}: {error}"
            )
            return self._process(*given, **named)
        if given:
            return self._process(left, *given[1:], **named)
        return self._process(**{**named, self._parameter: left})

    def _left(self, outputs: Iterable[Any], noted: Any) -> list[Any]:
        """Take what has new tokens and nothing else; return the other outputs.

        Args:
            noted: further arguments, which vLLM may note for the tokens.
        """
        left = []
        for output in outputs:
            try:
                is_taken = self._is_taken(output, noted)
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                fast_paths.turn_off("new_tokens", _EXPECTED, f"{type(error).__name__}: {error}")
                is_taken = False
            if is_taken:
                self.num_taken += 1
            else:
                left.append(output)
        return left

    def _is_taken(self, output: Any, noted: Any) -> bool:
        state = self._processor.request_states.get(output.request_id)
        reader: TokenReader | None = getattr(state, _READER, None)
        if reader is None:
            return False
        lists = None if reader.logprobs is None else output.new_logprobs
        if self._is_plain(output, noted, reader, lists):
            try:
                if reader.take(output.new_token_ids, lists):
                    return True
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                state.queue.put(error)
                return True
        before, reader.noted = reader.noted, noted
        # vLLM continues from all tokens before.
        reader.settle()
        if before is not reader and output.finish_reason is None:
            self._pass(output, reader, {} if before == noted else {"process_outputs": noted})
        return False

    def _is_plain(self, output: Any, noted: Any, reader: TokenReader, lists: Any) -> bool:
        """Tell whether an output has new tokens alone."""
        plain = self._plain
        try:
            plain.request_id, plain.new_token_ids = output.request_id, output.new_token_ids
            plain.new_logprobs = lists
            for name in self._of_prompt:
                setattr(plain, name, getattr(output, name))
            is_same = noted is reader.noted or noted == reader.noted
            is_plain = is_same and output == plain
            return bool(is_plain) and fast_paths.is_on("new_tokens")
        except ValueError:  # it has an array where the other one has none
            return False
        except Exception as error:  # noqa: BLE001  tokens that were taken before are still here
            fast_paths.turn_off("new_tokens", _EXPECTED, f"{type(error).__name__}: {error}")
            return False

    def _pass(self, output: Any, reader: TokenReader, unknown: dict[str, Any]) -> None:
        """Note an output of the middle that is left to vLLM; a request that has many is looked at.

        Args:
            unknown: what else came with it, where that has changed.

        Raises:
            Exception: its members cannot be told.
        """
        reader.num_passed += 1
        if reader.num_passed != _LOOKED_AT:
            return
        if self.num_taken > self._num_before:
            self._num_before = self.num_taken
            self._passed.took()
        plain = self._plain
        members = getattr(plain, "__struct_fields__", None) or vars(plain)
        unknown |= {
            name: getattr(output, name)
            for name in members
            if name not in _KNOWN and _differ(getattr(output, name), getattr(plain, name))
        }
        self._passed.passed(unknown)


def _differ(ours: Any, theirs: Any) -> bool:
    try:
        return bool(ours != theirs)
    except ValueError:  # an array
        return True
