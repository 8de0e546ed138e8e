"""A plugin in vLLM's cores: it has a request generate the tokens that it has elsewhere.

So all that a core keeps of generated tokens (a grammar's state, counts for penalties, a generator)
gets to where it was. vLLM loads the class by its entry point (`plugins.py`). With the
`logits_processors` argument vLLM would keep the ids of all requests at hand in each step.

No error here may stop the core. After an error no request is forced any more: the worker sees that
a resumed answer has other tokens, and fails it.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, forced_ids, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = "forced_tokens"
_EXPECTED: Final = "requests and logits as vLLM's runners give them"
_SecondRunners: Final = names.LogitsProcessor
_bases: tuple[type, ...] = (names.AdapterLogitsProcessor,)
if _SecondRunners is not None:
    _bases = (*_bases, _SecondRunners)


class ForcedTokens(*_bases):  # type: ignore[misc]
    """Leaves a request one token to choose, until it has all of its forced tokens.

    Requests without them cost a look at an empty dictionary a step.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        self._slots: dict[int, list[int]] = {}
        """The second runner's slots with such a request."""
        with _kept_alive():
            # The second runner gives its state, the first one a device and a bool.
            if len(runner) > 1:
                super().__init__(vllm_config, *runner)
            self._runner = runner[0]

    def is_argmax_invariant(self) -> bool:
        """Return False: greedy requests are forced too."""
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        """Return what the first runner calls for a request with its output so far and logits."""
        ids = _ids(params)
        return partial(_force_next, ids) if ids else None

    def update_state(self, batch_update: Any) -> None:
        """Take what the first runner says of its requests."""
        with _kept_alive():
            super().update_state(batch_update)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Take a request of the second runner; return whether its logits will be changed."""
        ids = _ids(sampling_params)
        self._slots.pop(req_idx, None)
        if ids:
            self._slots[req_idx] = ids
        return bool(ids)

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        """Change logits: [rows, vocabulary]; a row a request."""
        with _kept_alive():
            if ctx is not None:
                self._force_rows(logits, ctx)
            elif fast_paths.is_on(_NAME):
                return super().apply(logits)
        return logits

    def _force_rows(self, logits: Any, ctx: Any) -> None:
        for row, slot in enumerate(ctx.idx_mapping_np if self._slots else ()):
            if ids := self._slots.get(int(slot)):
                length = int(ctx.seq_lens_upper_bound_np[row])
                _force(ids, length - int(self._runner.prompt_len.np[slot]), logits[row])


@contextmanager
def _kept_alive() -> Iterator[None]:
    """Turn the path off if what is done here fails, and continue without it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  the core would end with all requests
        fast_paths.turn_off(_NAME, _EXPECTED, f"{type(error).__name__}: {error}")


def _ids(params: Any) -> list[int]:
    ids: list[int] = []
    with _kept_alive():
        ids += forced_ids.of(params)
    return ids


def _force_next(ids: Sequence[int], output: Sequence[int], logits: Any) -> Any:
    # What the output has may be placeholders; its length is right.
    with _kept_alive():
        _force(ids, len(output), logits)
    return logits


def _force(ids: Sequence[int], step: int, logits: Any) -> None:
    """Leave the token of a step alone in its logits: [vocabulary]."""
    # Below 0 a part of the prompt is computed, and nothing is chosen.
    if 0 <= step < len(ids) and fast_paths.is_on(_NAME):
        logits.fill_(-math.inf)
        logits[ids[step]] = 0.0
