"""Take the new tokens of one request, where vLLM's output processor does not see them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from lmi_backend.engines.vllm.inside import fast_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs, Position

EXPECTED: Final = "outputs whose new tokens alone can be told by comparing"
READER: Final = "lmi_token_reader"
"""Member of a RequestState of vLLM: what is known of a request lives as long."""
_TEXTLESS: Final = "IncrementalDetokenizer"
threads: Final[set[int]] = set()
"""Those of event loops, where readers were made."""


class TokenTaker(Protocol):
    """Takes the new tokens of one request; `read` has it get them."""

    logprobs: NewLogprobs | None
    """Reads log probabilities; without it an output that has some is left to vLLM."""
    num_passed: int
    """Outputs of its middle that were left to vLLM; 0 at first."""
    noted: Any
    """What vLLM has noted for the tokens to come; itself before it has seen any token."""

    def take(self, ids: Sequence[int], lists: Any, /) -> bool:
        """Take new tokens, which vLLM's detokeniser has not got; False if vLLM must read them.

        Args:
            ids: of the tokens.
            lists: vLLM's log probabilities of them; None where none are wanted.
        """
        ...

    def settle(self) -> None:
        """Have vLLM decode all that was taken: it gets an output."""
        ...


class TokenReader:
    """Keeps the new tokens of one request until somebody needs their text.

    Args:
        state: its RequestState of vLLM.
        take: gets the ids of new tokens.
    """

    logprobs: NewLogprobs | None = None

    def __init__(self, state: Any, take: Callable[[Sequence[int]], None]) -> None:
        self._state, self._take = state, take
        self._undecoded: Sequence[int] = ()
        self.num_passed = 0
        self.noted: Any = self

    def take(self, ids: Sequence[int], _lists: Any, /) -> bool:
        # Most have none before: what is taken is decoded at once, then.
        self._undecoded = [*self._undecoded, *ids] if self._undecoded else ids
        self._take(ids)
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

    settle = decode


def read(state: Any, reader: TokenTaker) -> None:
    """Have the new tokens of a RequestState of vLLM taken, where nothing else looks at each.

    Stop strings do: it decodes such a request's tokens as before, and its reader gets none.
    """
    threads.add(threading.get_ident())
    if not _stops(state.detokenizer):
        setattr(state, READER, reader)


def read_tokens(state: Any, take: Callable[[Sequence[int]], None]) -> TokenReader:
    """Have them kept by a reader of their own, and return it.

    Args:
        state: of vLLM.
        take: gets the ids of new tokens.
    """
    reader = TokenReader(state, take)
    read(state, reader)
    return reader


def leave(state: Any) -> None:
    """Leave the tokens that come next to vLLM; what was taken must be decoded."""
    if hasattr(state, READER):
        setattr(state, READER, None)


def _stops(detokenizer: Any) -> bool:
    """Tell whether a detokeniser of vLLM looks for stop strings, or may do so."""
    # vLLM's base class makes no text.
    return bool(getattr(detokenizer, "stop", type(detokenizer).__name__ != _TEXTLESS))


def candidates(reader: NewLogprobs, ids: Sequence[int], lists: Any) -> list[Position] | None:
    """Return the candidates of each new token; None if vLLM must read them.

    Args:
        reader: of the request.
        ids: of the tokens.
        lists: vLLM's log probabilities of them.
    """
    try:
        return reader.read(ids, lists)
    except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
        fast_paths.turn_off("new_tokens", EXPECTED, f"{type(error).__name__}: {error}")
        return None
