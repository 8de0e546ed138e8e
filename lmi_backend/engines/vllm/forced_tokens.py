"""A plugin in vLLM's cores: it has a request generate the tokens that it has elsewhere.

So all that a core keeps of generated tokens (a grammar's state, counts for penalties, a generator)
comes to where it was. vLLM loads the class by its entry point (`plugins.py`), not by the
`logits_processors` argument, for which it would keep the ids of all requests at hand in each step.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from vllm import envs
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

try:  # between 0.20 and 0.32: its second model runner takes no other
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as _SecondRunners
except ImportError:
    _SecondRunners = None

if TYPE_CHECKING:
    from collections.abc import Sequence

_IDS: Final = "lmi_backend.forced_ids"
"""Key of `SamplingParams.extra_args`: the ids."""
_bases: tuple[type, ...] = (AdapterLogitsProcessor,)
if _SecondRunners is not None:
    _bases = (AdapterLogitsProcessor, _SecondRunners)


def are_taken(engine: Any) -> bool:
    """Tell whether an engine's cores apply such plugins."""
    config = engine.vllm_config
    is_second = getattr(config, "use_v2_model_runner", None)  # between 0.20 and 0.32
    if is_second is None:
        is_second = getattr(envs, "VLLM_USE_V2_MODEL_RUNNER", False)  # 0.13
    return config.speculative_config is None and (_SecondRunners is not None or not is_second)


def add(params: Any, ids: Sequence[int]) -> None:
    """Have a request generate these tokens first; they must be in the vocabulary."""
    params.extra_args = {**(params.extra_args or {}), _IDS: list(ids)}


def remove(params: Any) -> None:
    """Drop from parameters, where a request has any, what `add` would have added."""
    if params is not None and params.extra_args:
        params.extra_args.pop(_IDS, None)


class ForcedTokens(*_bases):  # type: ignore[misc]
    """Leaves a request one token to choose, until it has all that were asked for.

    Requests without them cost a look at an empty dictionary a step.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        # The second runner gives its state, the first one a device and a bool.
        if len(runner) > 1:
            super().__init__(vllm_config, *runner)
        self._runner = runner[0]
        self._slots: dict[int, list[int]] = {}
        """The second runner's slots with such a request."""

    def is_argmax_invariant(self) -> bool:
        """Return False: greedy requests are forced too."""
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        """Return what the first runner calls for a request with its output so far and logits."""
        ids = _ids(params)
        return partial(_force_next, ids) if ids else None

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Take a request of the second runner; return whether its logits will be changed."""
        ids = _ids(sampling_params)
        self._slots.pop(req_idx, None)
        if ids:
            self._slots[req_idx] = ids
        return bool(ids)

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        """Change logits: [rows, vocabulary]; a row a request."""
        if ctx is None:
            return super().apply(logits)
        for row, slot in enumerate(ctx.idx_mapping_np if self._slots else ()):
            if ids := self._slots.get(int(slot)):
                length = int(ctx.seq_lens_upper_bound_np[row])
                _force(ids, length - int(self._runner.prompt_len.np[slot]), logits[row])
        return logits


def _ids(params: Any) -> list[int]:
    return (params.extra_args or {}).get(_IDS) or []


def _force_next(ids: Sequence[int], output: Sequence[int], logits: Any) -> Any:
    # What the output has may be placeholders; its length is right.
    _force(ids, len(output), logits)
    return logits


def _force(ids: Sequence[int], step: int, logits: Any) -> None:
    """Leave the token of a step alone in its logits: [vocabulary]."""
    # Below 0 a part of the prompt is computed, and nothing is chosen.
    if 0 <= step < len(ids):
        logits.fill_(-math.inf)
        logits[ids[step]] = 0.0
