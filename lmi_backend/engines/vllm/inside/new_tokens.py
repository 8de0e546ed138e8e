"""Take the new tokens of a step past what vLLM does for each output.

vLLM's output processor looks at each field of each output, and has each token decoded as it comes.
In the middle of most answers an output has new tokens and nothing else. Nobody looks at their text
before some of them are sent together. Those tokens go to their sender, which has them decoded.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs

_EXPECTED: Final = "outputs whose new tokens alone can be told by comparing"
_TEXTLESS: Final = "IncrementalDetokenizer"
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
        self._undecoded: list[int] = []
        self.weight_version: Any = self
        """That vLLM has noted for the tokens to come; no version, before it has seen any token."""

    def take(self, ids: Sequence[int], lists: Any) -> bool:
        """Take new tokens, which vLLM's detokeniser has not got; False if vLLM must read them.

        Args:
            ids: of the tokens.
            lists: vLLM's log probabilities of them; None where none are wanted.
        """
        if self._prepare is not None:
            self._prepare()
        if self.logprobs is None:
            self._undecoded.extend(ids)
            self._take(ids)
            return True
        try:
            positions = self.logprobs.read(ids, lists)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off("new_tokens", _EXPECTED, f"{type(error).__name__}: {error}")
            return False
        if positions is None:
            return False
        self._undecoded.extend(ids)
        self._take(ids, positions)
        return True

    def decode(self) -> None:
        """Give vLLM's detokeniser the tokens that it has not got; must be called before it is read.

        An exception of it fails the request.
        """
        if not self._undecoded:
            return
        ids, self._undecoded = self._undecoded, []
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
    reader = TokenReader(state, take, prepare, settle, logprobs)
    if not _stops(state.detokenizer):
        setattr(state, _READER, reader)
    return reader


def _stops(detokenizer: Any) -> bool:
    """Tell whether a detokeniser of vLLM looks for stop strings, or may do so."""
    # vLLM's base class makes no text.
    return bool(getattr(detokenizer, "stop", type(detokenizer).__name__ != _TEXTLESS))


def first_parameter(function: Any) -> str:
    """Return the name of the first parameter of a function of vLLM, or of its stand-in here."""
    name: str = getattr(getattr(function, "__self__", None), "parameter", "")
    return name or next(iter(inspect.signature(function).parameters))


class NewTokens:
    """Stands before the output processor of an AsyncLLM. `attach` puts it there.

    Args:
        engine: the AsyncLLM.
        plain: an EngineCoreOutput of this vLLM with new tokens and nothing else.
    """

    def __init__(self, engine: Any, plain: Any) -> None:
        self._processor, self._plain = engine.output_processor, plain
        self._process = self._processor.process_outputs
        self.parameter = first_parameter(self._process)
        """By which vLLM may give the outputs."""
        self.num_taken = 0
        """Outputs that vLLM has not seen."""

    def attach(self) -> None:
        """See all outputs from now on; none if vLLM counts them for its own metrics."""
        if not self._processor.log_stats:
            self._processor.process_outputs = self._process_others

    def _process_others(self, *given: Any, **named: Any) -> Any:
        try:
            outputs = given[0] if given else named[self.parameter]
            left = self._left(outputs, named.get("weight_version"))
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off(
                "new_tokens", "outputs in a list", f"{type(error).__name__}: {error}"
            )
            return self._process(*given, **named)
        if given:
            return self._process(left, *given[1:], **named)
        return self._process(**{**named, self.parameter: left})

    def _left(self, outputs: Iterable[Any], version: Any) -> list[Any]:
        """Take what has new tokens and nothing else; return the other outputs."""
        left = []
        for output in outputs:
            try:
                is_taken = self._is_taken(output, version)
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                fast_paths.turn_off("new_tokens", _EXPECTED, f"{type(error).__name__}: {error}")
                is_taken = False
            if is_taken:
                self.num_taken += 1
            else:
                left.append(output)
        return left

    def _is_taken(self, output: Any, version: Any) -> bool:
        state = self._processor.request_states.get(output.request_id)
        reader: TokenReader | None = getattr(state, _READER, None)
        if reader is None:
            return False
        plain, lists = self._plain, None if reader.logprobs is None else output.new_logprobs
        plain.request_id, plain.new_token_ids = output.request_id, output.new_token_ids
        plain.new_logprobs = lists
        try:
            is_plain = output == plain and version == reader.weight_version
            is_plain = is_plain and fast_paths.is_on("new_tokens")
        except ValueError:  # it has an array where the other one has none
            is_plain = False
        if is_plain:
            try:
                if reader.take(output.new_token_ids, lists):
                    return True
            except Exception as error:  # noqa: BLE001  it must not end the other requests
                state.queue.put(error)
                return True
        # vLLM continues from all tokens before.
        reader.settle()
        reader.weight_version = version
        return False
