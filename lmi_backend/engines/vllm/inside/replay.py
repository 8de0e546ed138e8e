"""Let a request resume from tokens that another engine generated.

The core gets the prompt and these tokens as a prompt. If more depends on which of them were
generated, it gets the original request, and a plugin has it choose them again (`forced_tokens`).
What it repeats is checked, and dropped.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from lmi_backend.engines.vllm.inside import compat, fast_paths, forced_ids, names
from lmi_backend.errors import EngineError
from lmi_backend.token_ids import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmi_backend.generation import Continuation

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
    may_repeat = is_greedy or is_seeded or forced_ids.are_taken(engine)
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
    known = _STATELESS.union(_STATEFUL)
    found = [name for name in fields if name not in known and not name.startswith("_")]
    usual = kind() if found else None
    return tuple((name, getattr(usual, name)) for name in found)


class Repeated:
    """Tokens that a core will generate again.

    Args:
        ids: of the tokens.
        are_forced: whether the core has no choice.
    """

    def __init__(self, ids: Sequence[int] = (), *, are_forced: bool = False) -> None:
        self._ids, self._are_forced = list(ids), are_forced

    def __bool__(self) -> bool:
        return bool(self._ids)

    def new_of(self, output: Any) -> Any:
        """Return an output without what it repeats; None if nothing is left.

        Raises:
            EngineError: it has other tokens.
        """
        ids, expected = list(output.new_token_ids), self._ids
        is_last, count = output.finish_reason is not None, min(len(ids), len(expected))
        is_same = ids[:count] == expected[:count]
        if not is_same or (is_last and count < len(expected)):
            if not is_same and self._are_forced:
                # A core that does not look at what is forced says nothing.
                came = f"{ids[:count]} instead of {expected[:count]}"
                fast_paths.turn_off("forced_tokens", "the tokens that a core is to generate", came)
            raise EngineError("the answer cannot resume: it comes out otherwise on this worker")
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
    """Have a core begin after tokens; return those that it generates once more.

    Args:
        engine: the AsyncLLM.
        request: an EngineCoreRequest on its way to the core, which is changed.
        ids: of the tokens.
    """
    params = compat.replaced(request.sampling_params.clone(), prompt_logprobs=None)
    has_prompt = request.prompt_token_ids and request.prompt_embeds is None
    if resume_strategy_of(engine, params) == "from the prompt" and has_prompt:
        request.prompt_token_ids = [*request.prompt_token_ids, *ids]
        request.sampling_params = compat.replaced(
            params,
            max_tokens=params.max_tokens - len(ids),
            min_tokens=max(0, params.min_tokens - len(ids)),
        )
        return Repeated()
    # Without the plugin a greedy or seeded request repeats them by itself.
    are_forced = bool(ids) and forced_ids.are_taken(engine)
    if are_forced:
        params = compat.replaced(params, extra_args=forced_ids.extra_args(params, ids))
    request.sampling_params = params
    return Repeated(ids, are_forced=are_forced)


def finished_elsewhere() -> EngineError:
    """Return the error of an answer that is over with the tokens that its client has."""
    return EngineError("the answer cannot resume: it has finished on this worker")


class ReplayedAnswer:
    """An answer that one of vLLM's own requests resumes.

    The tokens pass vLLM's output processor as if they had just been generated, in their original
    groups. So its detokeniser, its stop strings and its server are where those of the other engine
    were.

    Args:
        engine: the AsyncLLM.
        continuation: where it resumes.
    """

    def __init__(self, engine: Any, continuation: Continuation) -> None:
        if not fast_paths.is_on("resumption"):
            raise EngineError("the answer cannot be resumed: this vLLM's inside is not as expected")
        self._engine, self._groups = engine, unpack(continuation.ids)
        self._cumulative_logprob = continuation.cumulative_logprob
        self._state: Any = None
        self._repeated = Repeated()
        self.is_begun = False
        self.outputs: deque[Any] = deque()
        """What vLLM made of the tokens so far, in its order."""

    def begin(self, request: Any, kept_by: Any) -> bool:
        """Bring vLLM's processor to where the answer is; tell whether its core repeats tokens.

        Args:
            request: its EngineCoreRequest, which is changed before the core gets it.
            kept_by: vLLM's output processor.

        Raises:
            EngineError: the answer is another here.
        """
        self.is_begun = True
        with fast_paths.watched(
            "resumption", "an output processor that can be brought to any token"
        ):
            self._state = kept_by.request_states[request.request_id]
            self._replay_all(kept_by, request)
            if self._cumulative_logprob is not None:
                self._state.logprobs_processor.cumulative_logprob = self._cumulative_logprob
            ids = list(chain.from_iterable(self._groups))
            self._repeated = send_from(self._engine, request, ids)
        return bool(self._repeated)

    def check_begun(self) -> None:
        """Look whether its request was seen on its way to the core.

        Raises:
            EngineError: it was not, and its answer starts again.
        """
        if not self.is_begun:
            expected = "each request to be seen on its way to the core"
            fast_paths.turn_off("resumption", expected, "one was not")
            raise EngineError("the answer cannot resume: this vLLM's inside is not as expected")

    @property
    def is_over(self) -> bool:
        """Whether nothing more is repeated."""
        return not self._repeated

    def new_of(self, output: Any) -> Any:
        """Return an output without what it repeats, as `Repeated.new_of` does."""
        return self._repeated.new_of(output)

    def fail(self, error: Exception) -> None:
        """Fail the request."""
        self._repeated = Repeated()
        self._state.queue.put(error)

    def _replay_all(self, kept_by: Any, request: Any) -> None:
        state, prompt = self._state, {}
        if getattr(state.logprobs_processor, "prompt_logprobs", None) is not None:
            # The client has these too, and vLLM's server counts on them where it repeats a prompt.
            certain = compat.certain_logprobs((request.prompt_token_ids or [])[1:])
            prompt = {"new_prompt_logprobs_tensors": certain[:3]}
        interval = getattr(state, "stream_interval", 1)  # since 0.13
        if interval != 1:
            # Else the last tokens would come again, with the first new ones.
            state.stream_interval = 1
        for group in self._groups:
            own = {"request_id": request.request_id, "new_token_ids": list(group)}
            self._replay(kept_by, names.EngineCoreOutput(**own, **prompt))
            prompt = {}
        if interval != 1:
            state.stream_interval = interval
            state.sent_tokens_offset = sum(map(len, self._groups))

    def _replay(self, kept_by: Any, output: Any) -> None:
        if getattr(self._state.logprobs_processor, "num_logprobs", None) is not None:
            # The client has the true ones. vLLM resumes from the texts of these tokens.
            certain = compat.certain_logprobs(output.new_token_ids)
            output = compat.replaced(output, new_logprobs=certain)
        kept_by.process_outputs([output])
        made = self._state.queue.get_nowait()
        if output.request_id not in kept_by.request_states:
            raise finished_elsewhere()
        if made is not None:
            self.outputs.append(made)


current_replay: ContextVar[ReplayedAnswer | None] = ContextVar("current_replay", default=None)
"""Of the answer that this task resumes by one of vLLM's own requests."""
