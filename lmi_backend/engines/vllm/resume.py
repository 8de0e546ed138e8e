"""Let a request resume from tokens that another engine generated.

The core gets the prompt and these tokens as a prompt. If more depends on which of them were
generated, it gets the original request, and a plugin has it choose them again (`ForcedTokens`).
What it repeats is checked, and dropped.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.errors import EngineError
from lmi_backend.tokenization import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmi_backend.generation import Continuation

FORCED_IDS: Final = "lmi_backend.forced_ids"
"""Key of `SamplingParams.extra_args`."""


def takes_forced_ids(engine: Any) -> bool:
    return fast_paths.is_on("forced_tokens") and engine.vllm_config.speculative_config is None


def forced_args(params: Any, ids: Sequence[int]) -> dict[str, Any]:
    """Return the extra arguments by which a request generates these tokens first.

    They must be in the vocabulary.
    """
    return {**(params.extra_args or {}), FORCED_IDS: list(ids)}


ResumeStrategy = Literal["from the prompt", "from the start", ""]

_GREEDY: Final = 1e-5
"""Temperature below which vLLM takes the likeliest token."""
_STATEFUL: Final = (
    "structured_outputs", "guided_decoding", "presence_penalty", "frequency_penalty", "bad_words",
    "thinking_token_budget", "repetition_detection",
)  # fmt: skip
"""Parameters for which vLLM tells tokens that were generated from those of the prompt."""
_STATELESS: Final = frozenset(
    {
        "n", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "watermarking",
        "stop", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens", "logit_bias",
        "allowed_token_ids", "logprobs", "prompt_logprobs", "prompt_logprob_token_ids",
        "prompt_logprob_start", "logprob_token_ids", "flat_logprobs", "detokenize", "skip_clone",
        "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
        "output_kind", "output_text_buffer_length", "stream_interval", "extra_args", "best_of",
        "truncate_prompt_tokens", "skip_reading_prefix_cache", "routed_experts_prompt_start",
    }
)  # fmt: skip
"""Parameters of the releases that were run for which it does not, or that are looked at here."""


def resume_strategy_of(engine: Any, params: Any) -> ResumeStrategy:
    """Return how a request could resume: with its tokens as a prompt, repeated, or not at all."""
    if not fast_paths.is_on("resumption"):
        return ""
    if getattr(params, "n", 0) != 1 or params.output_kind != names.RequestOutputKind.DELTA:
        return ""
    is_greedy = params.temperature < _GREEDY
    is_seeded = params.seed is not None and not is_greedy
    is_stateful = any(getattr(params, name, None) for name in _STATEFUL) or any(
        getattr(params, name) != default for name, default in _unknown(params.__class__)
    )
    is_custom = getattr(engine.model_config, "logits_processors", None)
    if not (is_seeded or is_stateful or is_custom or _is_watermarked(engine, params)):
        return "from the prompt"
    may_repeat = is_greedy or is_seeded or takes_forced_ids(engine)
    return "from the start" if may_repeat else ""


def _is_watermarked(engine: Any, params: Any) -> bool:
    """Tell whether vLLM marks an answer: where it is configured to, if the request does not say."""
    config = getattr(getattr(engine, "vllm_config", None), "watermark_config", None)
    return config is not None and getattr(params, "watermarking", None) is not False


@lru_cache(maxsize=1)
def _unknown(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return vLLM's newer parameters, each with its default: nothing is known of them."""
    fields: Iterable[str] = getattr(kind, "__struct_fields__", ())
    fields = fields or getattr(kind, "__dataclass_fields__", ())
    judged = _STATELESS.union(_STATEFUL)
    newer = [name for name in fields if name not in judged and not name.startswith("_")]
    usual = kind() if newer else None
    return tuple((name, getattr(usual, name)) for name in newer)


class Repeated:
    """Tokens that a core will generate again."""

    def __init__(self, ids: Sequence[int] = (), *, are_forced: bool = False) -> None:
        self._ids, self._are_forced = list(ids), are_forced

    def __bool__(self) -> bool:
        return bool(self._ids)

    def new_of(self, output: Any) -> Any:
        """Return an output without what it repeats; None if nothing is left."""
        ids, expected = list(output.new_token_ids), self._ids
        is_last, count = output.finish_reason is not None, min(len(ids), len(expected))
        is_same = ids[:count] == expected[:count]
        if not is_same or (is_last and count < len(expected)):
            if not is_same and self._are_forced:
                # A core that does not look at what is forced says nothing.
                came = f"{ids[:count]} instead of {expected[:count]}"
                fast_paths.turn_off("forced_tokens", "the tokens that a core is to generate", came)
            raise EngineError("the answer cannot resume: this worker generated other tokens")
        del expected[:count]
        if not is_last and count == len(ids):
            return None
        lists = output.new_logprobs
        return compat.replaced(
            output,
            new_token_ids=ids[count:],
            new_prompt_logprobs_tensors=None,
            new_logprobs=None if lists is None else compat.logprobs_after(lists, count),
        )


def send_from(engine: Any, request: Any, ids: Sequence[int]) -> Repeated:
    """Have a core begin after tokens; return those that it generates once more."""
    params = compat.replaced(request.sampling_params, prompt_logprobs=None)
    has_prompt = request.prompt_token_ids and request.prompt_embeds is None
    if resume_strategy_of(engine, params) == "from the prompt" and has_prompt:
        params = compat.replaced(
            params,
            max_tokens=params.max_tokens - len(ids),
            min_tokens=max(0, params.min_tokens - len(ids)),
        )
        prompt = [*request.prompt_token_ids, *ids]
        compat.changed(request, prompt_token_ids=prompt, sampling_params=params)
        return Repeated()
    # Without the plugin a greedy or seeded request repeats them by itself.
    are_forced = bool(ids) and takes_forced_ids(engine)
    if are_forced:
        params = compat.replaced(params, extra_args=forced_args(params, ids))
    compat.changed(request, sampling_params=params)
    return Repeated(ids, are_forced=are_forced)


def finished_error() -> EngineError:
    return EngineError("the answer cannot resume: it has finished on this worker")


class ReplayedAnswer:
    """An answer that one of vLLM's own requests resumes.

    The tokens pass vLLM's output processor as if they had just been generated, in their original
    groups. So its detokeniser, its stop strings and its server are where those of the other engine
    were.
    """

    def __init__(self, engine: Any, continuation: Continuation) -> None:
        if not fast_paths.is_on("resumption"):
            raise EngineError("the answer cannot be resumed: this vLLM's inside is not as expected")
        self._engine, self._groups = engine, unpack(continuation.ids)
        self._cumulative_logprob = continuation.cumulative_logprob
        self._num_cached = continuation.num_cached_tokens or 0
        self._state: Any = None
        self.repeated = Repeated()
        self.is_begun = False
        self.outputs: deque[Any] = deque()
        """What vLLM made of the tokens so far, in its order."""

    def begin(self, request: Any, processor: Any) -> bool:
        """Bring vLLM's processor to where the answer is; tell whether its core repeats tokens."""
        self.is_begun = True
        self._state = processor.request_states[request.request_id]
        self._replay_all(processor, request)
        if self._cumulative_logprob is not None:
            logprobs_processor = self._state.logprobs_processor
            compat.changed(logprobs_processor, cumulative_logprob=self._cumulative_logprob)
        ids = list(chain.from_iterable(self._groups))
        self.repeated = send_from(self._engine, request, ids)
        return bool(self.repeated)

    def check_begun(self) -> None:
        """Look whether its request was seen on its way to the core."""
        if not self.is_begun:
            expected = "each request to be seen on its way to the core"
            fast_paths.turn_off("resumption", expected, "one was not")
            raise EngineError("the answer cannot resume: this vLLM's inside is not as expected")

    def fail(self, error: Exception) -> None:
        self.repeated = Repeated()
        self._state.queue.put(error)

    def _replay_all(self, processor: Any, request: Any) -> None:
        state, prompt = self._state, {}
        if getattr(state.logprobs_processor, "prompt_logprobs", None) is not None:
            # The client has these too, and vLLM's server counts on them where it repeats a prompt.
            certain = compat.certain_logprobs((request.prompt_token_ids or [])[1:])
            prompt = {"new_prompt_logprobs_tensors": certain[:3]}
        # What the client was told, and what it is billed by: this worker's cache is another.
        compat.changed(state, num_cached_tokens=self._num_cached)
        if "num_cached_tokens" in names.EngineCoreOutput.__struct_fields__:  # of older releases
            prompt["num_cached_tokens"] = self._num_cached
        interval = getattr(state, "stream_interval", 1)  # since 0.13
        if interval != 1:
            # Else the last tokens would come again, with the first new ones.
            compat.changed(state, stream_interval=1)
        for group in self._groups:
            own = {"request_id": request.request_id, "new_token_ids": list(group)}
            self._replay(processor, names.EngineCoreOutput(**own, **prompt))
            prompt = {}
        if interval != 1:
            sent = sum(map(len, self._groups))
            compat.changed(state, stream_interval=interval, sent_tokens_offset=sent)

    def _replay(self, processor: Any, output: Any) -> None:
        if getattr(self._state.logprobs_processor, "num_logprobs", None) is not None:
            # The client has the true ones. vLLM resumes from the texts of these tokens.
            certain = compat.certain_logprobs(output.new_token_ids)
            output = compat.replaced(output, new_logprobs=certain)
        processor.process_outputs([output])
        made = self._state.queue.get_nowait()
        if output.request_id not in processor.request_states:
            raise finished_error()
        if made is not None:
            self.outputs.append(made)


current_replay: ContextVar[ReplayedAnswer | None] = ContextVar("current_replay", default=None)
"""Of the answer that this task resumes by one of vLLM's own requests."""


# A plugin in vLLM's cores has a request generate the tokens that it has elsewhere. So all that a
# core keeps of generated tokens (a grammar's state, counts for penalties, a generator) gets to
# where it was. vLLM loads the class by its entry point (plugin/). With the `logits_processors`
# argument vLLM would keep the ids of all requests at hand in each step.
#
# No error here may stop the core. After an error no request is forced any more: the worker sees
# that a resumed answer has other tokens, and fails it.

_NAME: Final = "forced_tokens"
_EXPECTED: Final = "requests and logits as vLLM's runners give them"


@cache
def forced_tokens() -> type:
    """Return the class of the plugin, which both of vLLM's model runners take."""
    bases = filter(None, (_ForcedTokens, names.AdapterLogitsProcessor, names.LogitsProcessor))
    made: Any = type("ForcedTokens", tuple(bases), {})
    if inspect.isabstract(made):
        raise TypeError(f"it wants {', '.join(sorted(made.__abstractmethods__))}")
    return made  # type: ignore[no-any-return]


def __getattr__(name: str) -> type:
    if name != "ForcedTokens":
        raise AttributeError(name)
    return forced_tokens()


class _ForcedTokens:
    """Leaves a request one token to choose, until it has all of its forced tokens.

    Requests without them cost a look at an empty dictionary a step.
    """

    def __init__(self, vllm_config: Any, *runner: Any) -> None:
        self._slots: dict[int, list[int]] = {}
        """The second runner's slots with such a request."""
        with fast_paths.guarded(_NAME, _EXPECTED):
            # The second runner gives its state, the first one a device and a bool.
            if len(runner) > 1:
                super().__init__(vllm_config, *runner)  # type: ignore[call-arg]
            self._runner = runner[0]

    def is_argmax_invariant(self) -> bool:
        """Return False: greedy requests are forced too."""
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        """Return what the first runner calls for a request with its output so far and logits."""
        ids = _ids(params)
        return partial(_force_next, ids) if ids else None

    def update_state(self, batch_update: Any) -> None:
        with fast_paths.guarded(_NAME, _EXPECTED):
            super().update_state(batch_update)  # type: ignore[misc]

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Take a request of the second runner; return whether its logits will be changed."""
        ids = _ids(sampling_params)
        self._slots.pop(req_idx, None)
        if ids:
            self._slots[req_idx] = ids
        return bool(ids)

    def apply(self, logits: Any, ctx: Any = None) -> Any:
        """Change logits: [rows, vocabulary]; a row a request."""
        with fast_paths.guarded(_NAME, _EXPECTED):
            if ctx is not None:
                self._force_rows(logits, ctx)
            elif fast_paths.is_on(_NAME):
                return super().apply(logits)  # type: ignore[misc]
        return logits

    def _force_rows(self, logits: Any, ctx: Any) -> None:
        for row, slot in enumerate(ctx.idx_mapping_np if self._slots else ()):
            if ids := self._slots.get(int(slot)):
                length = int(ctx.seq_lens_upper_bound_np[row])
                _force(ids, length - int(self._runner.prompt_len.np[slot]), logits[row])


def _ids(params: Any) -> list[int]:
    ids: list[int] = []
    with fast_paths.guarded(_NAME, _EXPECTED):
        ids += (params.extra_args or {}).get(FORCED_IDS) or []
    return ids


def _force_next(ids: Sequence[int], output: Sequence[int], logits: Any) -> Any:
    # What the output has may be placeholders; its length is right.
    with fast_paths.guarded(_NAME, _EXPECTED):
        _force(ids, len(output), logits)
    return logits


def _force(ids: Sequence[int], step: int, logits: Any) -> None:
    """Leave the token of a step alone in its logits: [vocabulary]."""
    # Below 0 a part of the prompt is computed, and nothing is chosen.
    if 0 <= step < len(ids) and fast_paths.is_on(_NAME):
        logits.fill_(-math.inf)
        logits[ids[step]] = 0.0
