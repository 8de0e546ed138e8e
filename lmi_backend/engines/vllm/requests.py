"""Requests as vLLM takes them, and its outputs and errors as this package has them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lmi_backend.clients.openai import openai_failure
from lmi_backend.clients.spec import JSON
from lmi_backend.engines.vllm import compat, names
from lmi_backend.engines.vllm.answers import Piece
from lmi_backend.errors import EngineDeadError, EngineError, HttpError, LmiError, RequestError
from lmi_backend.generation import Delta, FinishReason, GenerateRequest, HttpChunk, Token
from lmi_backend.printable import cut
from lmi_backend.tokenization import pack

if TYPE_CHECKING:
    from lmi_backend.engines.vllm.answers import Position

_log = logging.getLogger(__name__)


# Where one of these is None, the model's generation_config.json decides, then vLLM.
_OPTIONAL = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)
_FRESH: Final = "skip_clone"
"""Parameter by which vLLM's own server says that nobody else has its parameters: a copy of all that
is in them takes longer than they take to make. Older releases do not have it."""


def sampling_params(
    request: GenerateRequest, model_defaults: dict[str, Any], vocabulary: int
) -> Any:
    sampling = request.sampling
    given = {name: value for name in _OPTIONAL if (value := getattr(sampling, name)) is not None}
    defaults = {name: model_defaults[name] for name in _OPTIONAL if name in model_defaults}
    kind = names.RequestOutputKind
    wanted = {
        "n": request.n,
        "logprobs": request.logprobs,
        "prompt_logprobs": request.prompt_logprobs,
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "stop": list(sampling.stop),
        # Clients of TensorRT-LLM's backend send an end_id that no model has, so that
        # nothing ends the answer, or another model's; vLLM refuses it.
        "stop_token_ids": [i for i in sampling.stop_token_ids if 0 <= i < vocabulary],
        "include_stop_str_in_output": sampling.include_stop,
        "ignore_eos": sampling.ignore_eos,
        "skip_special_tokens": sampling.skip_special_tokens,
        "spaces_between_special_tokens": sampling.spaces_between_special_tokens,
        "bad_words": list(sampling.bad_words) or None,
        "output_kind": kind.DELTA if request.stream else kind.FINAL_ONLY,
    }
    fresh = {_FRESH: True} if hasattr(names.SamplingParams, _FRESH) else {}
    try:
        return names.SamplingParams(**defaults | given | wanted | fresh | _extra(sampling.extra))
    except (TypeError, ValueError, names.VLLMClientError) as error:
        raise RequestError(f"are refused by vLLM: {error}", field="sampling parameters") from error


def _extra(extra: dict[str, Any]) -> dict[str, Any]:
    structure = extra.get("structured_outputs")
    if structure is None:
        return extra
    return extra | {"structured_outputs": names.StructuredOutputsParams(**structure)}


# A client names extra arguments as it likes in `vllm_xargs`. The core takes some for its own, and
# does not look at their kinds: it exits, with all its requests, where a connector or a diffusion
# model meets text.

_OBJECTS: Final = ("kv_transfer_params", "ec_transfer_params")
_NUMBERS: Final = ("diffusion_canvas_length", "diffusion_max_steps")
_MOST: Final = 1 << 20
"""Far more than a canvas has tokens, or takes steps."""


def check_extra_arguments(extra: Any) -> None:
    """Refuse extra arguments that the core takes for its own, of another kind."""
    for name, value in extra.items() if isinstance(extra, dict) else ():
        if value is None:
            continue
        if name in _OBJECTS and not isinstance(value, dict):
            problem, accepted = "is not an object", "an object"
        elif name in _NUMBERS and not (type(value) is int and 0 <= value <= _MOST):
            problem, accepted = "is not such a number", f"a whole number, 0 to {_MOST}"
        else:
            continue
        raise RequestError(problem, field=f"vllm_xargs.{name}", value=value, accepted=accepted)


_PATH: Final = re.compile(r"(?<!\S)/[^\s:]*\.\w+")
"""A file of a library, which says nothing to a client."""


_STATUSES: Final = ("http_status", "status_code")
"""Members in which an exception of vLLM carries its HTTP status."""
_BY_CLASS: Final = {"VLLMNotFoundError": 404, "VLLMUnprocessableEntityError": 422}
"""Statuses that vLLM's server gives to exceptions that carry none."""


def translated(error: Exception) -> LmiError:
    """Return our error for vLLM's, most specific first."""
    error = unwrapped(error)
    if isinstance(error, LmiError):
        return error
    if isinstance(error, names.EngineDeadError):
        return EngineDeadError(f"vLLM's engine core died: {error}")
    status, text = status_of(error), _PATH.sub("<path>", str(error))
    if status == HTTPStatus.BAD_REQUEST:
        return RequestError(f"is refused by vLLM: {text}", field="request")
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return EngineError(f"vLLM failed on this request: {type(error).__name__}: {text}")
    return HttpError(status, text)


def status_of(error: Exception) -> int:
    """Return the HTTP status that vLLM's server gives an exception of vLLM's."""
    for status in (getattr(error, name, None) for name in _STATUSES):
        if isinstance(status, int):
            return int(status)
    kinds = [each.__name__ for each in type(error).__mro__]
    if statuses := [_BY_CLASS[each] for each in kinds if each in _BY_CLASS]:
        return statuses[0]
    is_clients = isinstance(error, names.VLLMClientError | ValueError)
    return HTTPStatus.BAD_REQUEST if is_clients else HTTPStatus.INTERNAL_SERVER_ERROR


def refusal(error: Exception) -> HttpChunk:
    """Return what vLLM's server answers for an exception, as long as it has answered nothing."""
    error = unwrapped(error)
    status = status_of(error)
    answer = HttpError(status, _PATH.sub("<path>", cut(str(error) or type(error).__name__)))
    data = openai_failure(answer).data
    return HttpChunk(data, is_last=True, status=status, headers={"content-type": JSON})


def unwrapped(error: Exception) -> Exception:
    """Return what vLLM, or Starlette after a response has begun, has raised another error for."""
    is_wrapped = isinstance(error, names.EngineGenerateError) or type(error) is RuntimeError
    cause = error.__cause__
    return unwrapped(cause) if is_wrapped and isinstance(cause, Exception) else error


_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    # vLLM also ends answers it finds repetitive; clients know that as a stop.
    "repetition": "stop",
}
"""The reasons of vLLM, as clients know them; an unknown one is added when it is first seen."""


class OutputReader:
    """Makes the deltas of one request, of vLLM's outputs or of an answer of our own."""

    writes_prefix = False

    def __init__(self, tokenizer: Any, request: GenerateRequest) -> None:
        self.is_whole = not request.stream
        self.sends_ids = False
        self._is_structured = bool(request.sampling.extra.get("structured_outputs"))
        self.wants_tokens = request.logprobs is not None
        self._num_prompt_tokens = self._num_tokens = 0
        self._prompt_ids: Sequence[int] | None = None
        self._alternatives = request.logprobs or 0
        self._prompt_alternatives = request.prompt_logprobs
        self._tokenizer = tokenizer
        self._special = (
            frozenset(getattr(tokenizer, "all_special_ids", ()))
            if self.wants_tokens or request.prompt_logprobs is not None
            else frozenset()
        )

    def begin(self, prompt_ids: Sequence[int] | None, num_prompt_tokens: int) -> None:
        self._prompt_ids, self._num_prompt_tokens = prompt_ids, num_prompt_tokens

    def chunk(self, piece: Piece) -> Delta:
        ids = piece.token_ids
        delta = Delta(
            piece.text,
            len(ids),
            _reason(piece.finish_reason),
            piece.stop_reason,
            self._num_prompt_tokens,
            piece.index,
            ids=pack(ids) if self.sends_ids else b"",
        )
        if self.wants_tokens:
            positions = piece.logprobs or ()
            if len(positions) < len(ids):
                raise EngineError("vLLM gives no log probabilities with its tokens")
            delta.tokens = tuple(map(self._chosen, ids, positions))
            if piece.texts is not None:
                pairs = zip(delta.tokens, piece.texts, strict=True)
                delta.tokens = tuple(replace(token, added=text) for token, text in pairs)
            delta.cumulative_logprob = piece.cumulative_logprob
        return delta

    def add_prompt(self, chunk: Delta, logprobs: Any) -> None:
        if self._prompt_alternatives is not None:
            chunk.prompt_tokens = self._prompt_tokens(self._prompt_ids or (), logprobs)

    def failure(self, num_tokens: int, num_last: int = 0) -> LmiError:
        """Return why vLLM has failed on the request; the arguments are those of `unfit`."""
        if not self._is_structured:
            return EngineError("vLLM failed on the request; its log says why")
        return RequestError(unfit(num_tokens, num_last), field="structured_outputs")

    def deltas(self, output: Any) -> Iterator[Delta]:
        """Yield what one output of vLLM adds, a delta for each answer in it."""
        if output.prompt_token_ids is not None:
            self.begin(output.prompt_token_ids, len(output.prompt_token_ids))
        for each in output.outputs:
            ids = each.token_ids
            if _reason(each.finish_reason) == "error":
                raise self.failure(self._num_tokens, len(ids))
            self._num_tokens += len(ids)
            rest = each.logprobs, each.cumulative_logprob, each.finish_reason, each.stop_reason
            delta = self.chunk(Piece(each.index, each.text or "", ids, *rest))
            delta.num_cached_tokens = compat.cached_tokens(output)
            if output.prompt_logprobs:
                self.add_prompt(delta, output.prompt_logprobs)
            yield delta

    def _chosen(self, token_id: int, position: Position) -> Token:
        if not isinstance(position, tuple):
            return self._token(token_id, position, self._alternatives)
        logprob, rank, own = position
        return Token(token_id, own, logprob, rank, token_id in self._special)

    def _prompt_tokens(self, ids: Sequence[int], positions: Sequence[Any]) -> tuple[Token, ...]:
        alternatives = self._prompt_alternatives or 0
        return tuple(
            self._token(token_id, logprobs, alternatives) if logprobs else self._plain(token_id)
            for token_id, logprobs in zip(ids, positions, strict=False)
        )

    def _plain(self, token_id: int) -> Token:
        """Return the first token of a prompt: vLLM gives its id alone."""
        text = self._tokenizer.decode([token_id]) if self._tokenizer is not None else ""
        return Token(token_id, text, is_special=token_id in self._special)

    def _token(self, token_id: int, logprobs: Mapping[int, Any], alternatives: int) -> Token:
        """Return the token at a position, for which vLLM gives the likeliest and the chosen one."""
        chosen = logprobs.get(token_id)
        best: Sequence[tuple[int, Any]] = ()
        if alternatives:
            best = sorted(logprobs.items(), key=lambda item: item[1].rank or 0)[:alternatives]
        return Token(
            token_id,
            (chosen.decoded_token or "") if chosen else "",
            chosen.logprob if chosen else None,
            chosen.rank if chosen else None,
            is_special=token_id in self._special,
            top=tuple(
                Token(
                    other,
                    logprob.decoded_token or "",
                    logprob.logprob,
                    logprob.rank,
                    is_special=other in self._special,
                )
                for other, logprob in best
            ),
        )


def unfit(num_tokens: int, num_last: int = 0) -> str:
    """Return what is wrong with structured outputs on which vLLM fails.

    Args:
        num_tokens: that fit, before the output that fails.
        num_last: in that output. vLLM hands on the token that it has refused.
    """
    if num_tokens := num_tokens + max(0, num_last - 1):
        return f"stopped fitting any text of this model after {num_tokens} tokens"
    return "fit no text of this model, or could not be compiled"


def length(ids: Any) -> int:
    """Return how many ids there are; vLLM has none, a list, or what a later release has."""
    return 0 if ids is None else len(ids)


def _reason(reason: Any) -> FinishReason | None:
    if reason is None:
        return None
    word = str(reason)
    if word not in _REASONS:
        if not word.isidentifier():
            raise EngineError(f"vLLM gives no reason why an answer is finished: {reason!r}")
        _log.warning("vLLM finishes answers for a reason that is not known: %s", word)
        _REASONS[word] = "stop"
    return _REASONS[word]
