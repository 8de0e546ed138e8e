"""Let a request of vLLM resume from tokens that another engine generated.

The tokens pass vLLM's output processor as if they had just been generated, in their original
groups. So its detokeniser, its stop strings and all that reads its outputs are in the state of the
other engine's. Its core gets the prompt and these tokens as a prompt. If more depends on which of
them were generated, it gets the original request. A plugin then has it choose these tokens again
(`forced_tokens`). What it repeats is checked.
"""

from __future__ import annotations

import contextvars
import inspect
from collections import deque
from copy import copy
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

from lmi_backend.engines.vllm.inside import compat, fast_paths, forced_ids, names, packed_logprobs
from lmi_backend.engines.vllm.inside.new_tokens import first_parameter
from lmi_backend.errors import EngineError
from lmi_backend.token_ids import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class Continued:
    """One request that resumes."""

    def __init__(self, continuation: Continuation) -> None:
        self._groups = unpack(continuation.ids)
        self._cumulative_logprob = continuation.cumulative_logprob
        self.is_begun = False
        self.outputs: deque[Any] = deque()
        """What vLLM made of the tokens so far, in its order."""

    @classmethod
    def of(cls, continuation: Continuation) -> Continued:
        """Make one.

        Raises:
            EngineError: this vLLM lets none resume.
        """
        if not fast_paths.is_on("resumption"):
            raise EngineError("the answer cannot be resumed: this vLLM's inside is not as expected")
        return cls(continuation)

    def begin(self, engine: Any, request: Any) -> tuple[Any, list[int]]:
        """Bring the output processor to where the answer is.

        Returns:
            What the core is to be sent instead of its EngineCoreRequest, and the tokens that it
            will repeat.

        Raises:
            EngineError: the answer is another here.
        """
        self.is_begun = True
        state = engine.output_processor.request_states.get(request.request_id)
        self._replay_all(engine, state, request)
        if self._cumulative_logprob is not None:
            state.logprobs_processor.cumulative_logprob = self._cumulative_logprob
        ids = list(chain.from_iterable(self._groups))
        params = compat.replaced(request.sampling_params.clone(), prompt_logprobs=None)
        changed = compat.replaced(copy(request), sampling_params=params)
        has_prompt = request.prompt_token_ids and request.prompt_embeds is None
        if resume_strategy_of(engine, params) != "from the prompt" or not has_prompt:
            # Without the plugin a greedy or seeded request repeats them by itself.
            if ids and forced_ids.are_taken(engine):
                params = compat.replaced(params, extra_args=forced_ids.extra_args(params, ids))
            return compat.replaced(changed, sampling_params=params), ids
        params = compat.replaced(
            params,
            max_tokens=params.max_tokens - len(ids),
            min_tokens=max(0, params.min_tokens - len(ids)),
        )
        prompt = [*request.prompt_token_ids, *ids]
        return compat.replaced(changed, sampling_params=params, prompt_token_ids=prompt), []

    def _replay_all(self, engine: Any, state: Any, request: Any) -> None:
        own, prompt = {"request_id": request.request_id}, {}
        if getattr(state.logprobs_processor, "prompt_logprobs", None) is not None:
            # The client has these too, and vLLM's server counts on them where it repeats a prompt.
            certain = compat.certain_logprobs((request.prompt_token_ids or [])[1:])
            prompt = {"new_prompt_logprobs_tensors": certain[:3]}
        interval = getattr(state, "stream_interval", 1)  # since 0.13
        if interval != 1:
            # Else the last tokens would come again, with the first new ones.
            state.stream_interval = 1
        for group in self._groups:
            output = names.EngineCoreOutput(new_token_ids=list(group), **own, **prompt)
            self._replay(engine, state, output)
            prompt = {}
        if interval != 1:
            state.stream_interval = interval
            state.sent_tokens_offset = sum(map(len, self._groups))

    def _replay(self, engine: Any, state: Any, output: Any) -> None:
        if getattr(state.logprobs_processor, "num_logprobs", None) is not None:
            # The client has the true ones. vLLM resumes from the texts of these tokens.
            certain = compat.certain_logprobs(output.new_token_ids)
            output = compat.replaced(output, new_logprobs=certain)
        engine.output_processor.process_outputs([output])
        made = state.queue.get_nowait()
        if output.request_id not in engine.output_processor.request_states:
            raise EngineError("the answer cannot resume: it has finished on this worker")
        if made is not None:
            self.outputs.append(made)


current: contextvars.ContextVar[Continued | None] = contextvars.ContextVar("current", default=None)
"""What resumes in this task."""


def check_begun() -> None:
    """Look whether a request of this task that resumes was seen on its way to the core.

    Raises:
        EngineError: it was not, and its answer starts again.
    """
    continued = current.get()
    if continued is not None and not continued.is_begun:
        expected = "each request to be seen on its way to the core"
        fast_paths.turn_off("resumption", expected, "one was not")
        raise EngineError("the answer cannot resume: this vLLM's inside is not as expected")


class Continuations:
    """Stands between an AsyncLLM and its core, for requests that resume. `attach` puts it there."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._add = engine.engine_core.add_request_async
        self._process = engine.output_processor.process_outputs
        self._parameter = first_parameter(self._process)
        """By which vLLM may give the outputs."""
        self._request = first_parameter(self._add)
        self.first_parameters = {
            self._process_others.__name__: self._parameter,
            self._add_request.__name__: self._request,
        }
        self._repeated: dict[str, list[int]] = {}
        """Request to the tokens that its core will repeat."""

    def attach(self) -> None:
        """See all requests from now on.

        Raises:
            TypeError: nobody would wait for what stands in for the core's function.
        """
        if not inspect.iscoroutinefunction(self._add):
            raise TypeError("add_request_async is no coroutine")
        self._engine.engine_core.add_request_async = self._add_request

    async def _add_request(self, *given: Any, **named: Any) -> None:
        request = given[0] if given else named[self._request]
        # A client could name ids that no vocabulary has, and its core would die.
        forced_ids.remove(request.sampling_params)
        continued = current.get()
        if continued is not None and not continued.is_begun:
            with fast_paths.watched(
                "resumption", "an output processor that can be brought to any token"
            ):
                request, repeated = continued.begin(self._engine, request)
            if repeated:
                self._repeated[request.request_id] = repeated
                self._engine.output_processor.process_outputs = self._process_others
        if given:
            await self._add(request, *given[1:], **named)
        else:
            await self._add(**{**named, self._request: request})

    def _process_others(self, *given: Any, **named: Any) -> Any:
        """Process outputs but for what they repeat; only there while something is repeated."""
        try:
            outputs = given[0] if given else named[self._parameter]
            found = map(self._new_alone, outputs)
            left = [output for output in found if output is not None]
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            fast_paths.turn_off(
                "resumption", "outputs in a list", f"{type(error).__name__}: {error}"
            )
            for request_id in list(self._repeated):
                self._fail(request_id, error)
            return self._process(*given, **named)
        if not self._repeated:
            self._engine.output_processor.process_outputs = self._process
        if given:
            return self._process(left, *given[1:], **named)
        return self._process(**{**named, self._parameter: left})

    def _new_alone(self, output: Any) -> Any:
        """Return what `_new_of` does; what that raises fails its request alone."""
        try:
            return self._new_of(output)
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            self._fail(output.request_id, error)
            return None

    def _fail(self, request_id: str, error: Exception) -> None:
        """End a request that repeats tokens."""
        self._repeated.pop(request_id, None)
        state = self._engine.output_processor.request_states.get(request_id)
        if state is not None:
            state.queue.put(error)

    def _new_of(self, output: Any) -> Any:
        """Return an output without what it repeats; None if nothing is left."""
        repeated = self._repeated.get(output.request_id)
        if repeated is None:
            return output
        state = self._engine.output_processor.request_states.get(output.request_id)
        ids = output.new_token_ids
        is_last = output.finish_reason is not None
        count = min(len(ids), len(repeated))
        is_same = list(ids[:count]) == repeated[:count]
        if state is None or not is_same or (is_last and count < len(repeated)):
            if not is_same and forced_ids.are_taken(self._engine):
                # It was forced. A core that does not look at what is forced says nothing.
                came = f"{list(ids[:count])} instead of {repeated[:count]}"
                fast_paths.turn_off("forced_tokens", "the tokens that a core is to generate", came)
            message = "the answer cannot resume: it comes out otherwise on this worker"
            self._fail(output.request_id, EngineError(message))
            return None
        del repeated[:count]
        if not repeated:
            del self._repeated[output.request_id]
        if not is_last and count == len(ids):
            return None
        packed, lists = packed_logprobs.in_use(), output.new_logprobs
        if packed is not None:
            lists = packed.lists(lists)
        return compat.replaced(
            output,
            new_token_ids=ids[count:],
            new_prompt_logprobs_tensors=None,
            new_logprobs=None if lists is None else compat.logprobs_after(lists, count),
        )
