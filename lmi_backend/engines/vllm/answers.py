"""Answers of our own: from the outputs of vLLM's core to chunks, past its output processor.

vLLM decodes each token as it comes, makes an output of it, and wakes a task. Here tokens stay as
they are until they leave together. vLLM's detokeniser makes their text, and finds stop strings.

Its processor of log probabilities makes objects of each candidate, and decodes each by a call. Most
candidates have a text of their own, which is the same wherever they stand. The others are left to
it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from lmi_backend.engines.protocol import Deferring
from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.engines.vllm.resume import Repeated, finished_error, send_from
from lmi_backend.errors import EngineError
from lmi_backend.tokenization import unpack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lmi_backend.generation import Continuation

_INCOMPLETE: Final = "\ufffd"
"""At the end of a text: bytes of a character that has more, whose text vLLM looks for."""
_CONTEXT: Final = 4
"""Tokens that vLLM looks back at, for a character of several tokens."""
_MOST_TEXTS: Final = 1 << 18
_MOST_CANDIDATES: Final = 64
"""Of a position, whose texts are looked up one by one."""


class Candidate(NamedTuple):
    """A token at a position, under vLLM's names."""

    logprob: float
    rank: int
    decoded_token: str


Position = dict[int, Candidate] | tuple[float, int, str]
"""Candidates by their ids. The generated one is first; what a candidate has, where it is alone."""
_texts: dict[int, str] = {}
"""Of the tokens of this process's model."""


class TokenLogprobs:
    """Reads those of one answer. `of` makes one."""

    def __init__(self, theirs: Any, *, is_usual: bool) -> None:
        self._theirs, self._tokenizer = theirs, theirs.tokenizer
        self._has_own = theirs.num_logprobs is not None
        width = (theirs.num_logprobs or 0) + 1
        self._width = width if is_usual and 0 < width <= _MOST_CANDIDATES else 0
        self._positions: list[Position] = []
        self._seen: list[int] = []
        self._total = theirs.cumulative_logprob

    @classmethod
    def of(cls, tokenizer: Any, request: Any) -> TokenLogprobs | None:
        """Return what reads those of a request of vLLM's core; None if it wants none."""
        params = request.sampling_params
        wanted = ("logprobs", "prompt_logprobs", "logprob_token_ids")
        if all(getattr(params, name, None) is None for name in wanted):
            return None
        theirs = names.LogprobsProcessor.from_new_request(tokenizer=tokenizer, request=request)
        others = (tokenizer is None, getattr(params, "logprob_token_ids", None))
        return cls(theirs, is_usual=not any((*others, getattr(params, "flat_logprobs", False))))

    def read(self, output: Any, ids: Sequence[int]) -> None:
        if output.new_prompt_logprobs_tensors is None and self._read_usual(output, ids):
            return
        theirs = self._theirs
        if isinstance(theirs.logprobs, list):
            # It looks back at the ids alone.
            seen = [{token: None} for token in self._seen[-_CONTEXT:]]
            compat.changed(theirs, logprobs=seen, cumulative_logprob=self._total)
        count = len(theirs.logprobs) if self._has_own else 0
        theirs.update_from_output(output)
        if self._has_own:
            self._positions += theirs.logprobs[count:]
            self._seen += ids
            self._total = theirs.cumulative_logprob

    def _read_usual(self, output: Any, ids: Sequence[int]) -> bool:
        """Read them past vLLM's processor; False, with nothing noted, if that must."""
        lists, width = output.new_logprobs, self._width
        if not (self._has_own and width and lists is not None):
            return not self._has_own and lists is None
        if isinstance(lists.logprob_token_ids, list):  # 0.11
            return False
        if width == len(ids) == 1:
            return self._read_one(ids[0], lists)
        rows = lists.logprob_token_ids.tolist(), lists.logprobs.tolist()
        positions: list[Position] = []
        for token, candidates, logprobs, rank in zip(
            ids, *rows, lists.sampled_token_ranks.tolist(), strict=True
        ):
            if candidates[0] != token:
                return False
            del candidates[width:]
            texts = [_texts.get(each) or self._text(each) for each in candidates]
            for text in texts:
                if text.endswith(_INCOMPLETE):
                    return False
            if width == 1:
                # Most requests want the log probability of the token alone.
                positions.append((logprobs[0], rank, texts[0]))
                continue
            ranks = chain((rank,), range(1, width))
            positions.append(
                dict(zip(candidates, map(Candidate, logprobs, ranks, texts), strict=False))
            )
        self._positions += positions
        self._seen += ids
        for row in rows[1]:
            self._total += row[0]
        return True

    def _read_one(self, token: int, lists: Any) -> bool:
        text = _texts.get(token) or self._text(token)
        if lists.logprob_token_ids.item(0) != token or text.endswith(_INCOMPLETE):
            return False
        logprob = lists.logprobs.item(0)
        self._positions.append((logprob, lists.sampled_token_ranks.item(0), text))
        self._seen.append(token)
        self._total += logprob
        return True

    def _text(self, token: int) -> str:
        text: str
        (text,) = names.logprobs.convert_ids_list_to_tokens(self._tokenizer, [token])
        if len(_texts) < _MOST_TEXTS:
            _texts[token] = text
        return text

    def know(self, ids: Sequence[int], cumulative_logprob: float | None) -> None:
        """Note tokens that the client has with theirs."""
        if self._has_own:
            self._seen += ids
            if cumulative_logprob is not None:
                self._total = cumulative_logprob

    def drop(self, count: int) -> None:
        """Forget those of the last tokens, which come after the end of the answer."""
        for position in self._positions[-count:]:
            first = (
                position[0]
                if isinstance(position, tuple)
                else next(iter(position.values())).logprob
            )
            self._total -= first
        del self._positions[-count:], self._seen[-count:]

    def taken(self) -> tuple[list[Position] | None, float | None]:
        """Return those that were not returned yet, and the sum of all so far."""
        if not self._has_own:
            return None, None
        positions, self._positions = self._positions, []
        return positions, self._total

    def of_prompt(self) -> Any:
        """Return vLLM's log probabilities of the prompt, once; None if there are none."""
        return self._theirs.pop_prompt_logprobs()


class Piece(msgspec.Struct, gc=False):
    """What tokens add to an answer, under the names of vLLM's CompletionOutput."""

    index: int
    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[Position] | None = None
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    texts: Sequence[str] | None = None
    """What each token adds to the text, where a stop string may hold that back."""
    num_cached_tokens: int | None = None
    """Of a chunk (`Delta`)."""


class ChunkMaker(Protocol):
    """Makes the chunks of one request."""

    is_whole: bool
    writes_prefix: bool
    """Whether the chunks of an answer that resumes begin with what its client has."""

    def begin(self, prompt_ids: Sequence[int] | None, num_prompt_tokens: int, /) -> None: ...

    def chunk(self, piece: Piece, /) -> Any:
        """Return the chunk of a piece; None if it leaves with the next one."""
        ...

    def add_prompt(self, chunk: Any, logprobs: Any, /) -> None:
        """Add the log probabilities of the prompt to the first chunk."""
        ...

    def failure(self, num_tokens: int, /) -> Exception:
        """Return why vLLM has failed on the request, after so many tokens."""
        ...


class ChunkReceiver(Deferring, Protocol):
    def take(self, chunk: Any, /) -> None: ...


_MOST_CHARACTERS: Final = 200
_MEMBERS: Final = frozenset(
    {
        "request_id", "new_token_ids", "new_logprobs", "new_prompt_logprobs_tensors",
        "pooling_output", "finish_reason", "stop_reason", "events", "kv_transfer_params",
        "ec_transfer_params", "trace_headers", "prefill_stats", "num_cached_tokens",
        "num_external_computed_tokens", "routed_experts", "num_nans_in_logits",
        "mm_cache_miss_hashes", "new_sampling_mask", "spec_decode_metrics",
        "prompt_token_id_logprobs", "error",
    }
)  # fmt: skip
"""Members of an EngineCoreOutput of the releases that were run."""


@lru_cache(maxsize=1)
def _unknown_members(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the members of a class of outputs that no release had, each with its default."""
    fields = msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else ()
    return tuple((each.name, each.default) for each in fields if each.name not in _MEMBERS)


async def do_nothing() -> None:
    """Do nothing when a request was added."""


async def generate(
    engine: Any,
    arguments: dict[str, Any],
    maker: ChunkMaker,
    sink: ChunkReceiver,
    *,
    continuation: Continuation | None = None,
    on_added: Callable[[], Awaitable[None]] = do_nothing,
) -> None:
    """Generate one request's answers. Cancelling aborts it.

    Args:
        arguments: of `AsyncLLM.add_request`. The prompt is removed: it may hold images.
        on_added: called when vLLM has read the prompt.
    """
    ours = Generation(engine, maker, sink, continuation, getattr(arguments["params"], "n", 1))
    try:
        token = current_generation.set(ours)
        try:
            await engine.add_request(**arguments)
        finally:
            current_generation.reset(token)
        arguments.pop("prompt", None)
        if not ours.num_answers:
            ours.fail(EngineError("vLLM has taken the request past its output processor"))
        await on_added()
        await ours.ended
    except BaseException:
        await ours.abort()
        raise


class Generation:
    """One request, and those of its answers that are open."""

    def __init__(
        self,
        engine: Any,
        maker: ChunkMaker,
        sink: ChunkReceiver,
        continuation: Continuation | None = None,
        num_wanted: int = 1,
    ) -> None:
        self._engine, self.maker, self.sink = engine, maker, sink
        self._continuation, self._num_wanted = continuation, num_wanted
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open: dict[str, OwnAnswer] = {}
        self.num_answers = 0

    def answer(self, request: Any, processor: Any) -> OwnAnswer:
        """Return a new answer to an EngineCoreRequest, which is changed if it resumes."""
        answer = OwnAnswer(self, request, self.num_answers, processor)
        if not self.num_answers:
            self.maker.begin(request.prompt_token_ids, answer.prompt_len)
        self.num_answers += 1
        self._open[request.request_id] = answer
        if self._continuation is not None:
            groups = unpack(self._continuation.ids)
            answer.replay(groups, self._continuation.cumulative_logprob)
            ids = list(chain.from_iterable(groups))
            answer.repeated = send_from(self._engine, request, ids)
        return answer

    def finish(self, request_id: str) -> None:
        self._open.pop(request_id, None)
        # An older vLLM sends the first to its core before it adds the next.
        is_over = not self._open and self.num_answers >= self._num_wanted
        if is_over and not self.ended.done():
            self.ended.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    async def abort(self) -> None:
        ids = list(self._open)
        for request_id in ids:
            self._engine.output_processor.answers.pop(request_id, None)
        if ids and not self._engine.errored:
            await self._engine.engine_core.abort_requests_async(ids)


current_generation: ContextVar[Generation | None] = ContextVar("current_generation", default=None)
"""That the request belongs to which this task adds now."""


class OwnAnswer:
    """One answer; `take` gets each step's output of it."""

    def __init__(self, of: Generation, request: Any, index: int, processor: Any) -> None:
        params = request.sampling_params
        self._of, self._id, self._index = of, request.request_id, index
        tokenizer = processor.tokenizer if getattr(params, "detokenize", True) else None
        self._detokenizer = names.IncrementalDetokenizer.from_new_request(tokenizer, request)
        self._update = self._detokenizer.update
        self._text = self._detokenizer.get_next_output_text
        self._stops = bool(getattr(self._detokenizer, "stop", ()))
        self._logprobs = TokenLogprobs.of(tokenizer, request)
        self._chunk, self._give, self._defer = of.maker.chunk, of.sink.take, of.sink.defer
        self._is_whole = of.maker.is_whole
        engines, own = (
            getattr(processor, "stream_interval", 1),
            getattr(params, "stream_interval", 1),
        )
        self._interval = sys.maxsize if self._is_whole else max(engines or 1, own or 1)
        """Fewest tokens of a chunk of the middle."""
        prompt = request.prompt_token_ids
        self.prompt_len = len(request.prompt_embeds if prompt is None else prompt)
        self.lora_name = request.lora_request and request.lora_request.lora_name
        self.is_prefilling = True
        self._num_cached: int | None = None
        self.repeated: Repeated | None = None
        """Tokens that its client has, and its core generates again."""
        self._is_plain = False
        """Whether the middle has nothing to look at but tokens and their log probabilities."""
        self._unknown = _unknown_members(names.EngineCoreOutput)
        self._ids: list[int] = []
        """Tokens that no chunk has."""
        self._texts: list[str] = []
        """What each of these tokens adds to the text, where that is told with the tokens."""
        self._num_tokens = 0
        self._began: float | None = None

    def take(self, output: Any) -> bool:
        """Take a step's EngineCoreOutput; True if the answer is over."""
        try:
            if not (self._is_plain and output.finish_reason is None):
                return self._take(output)
            ids = output.new_token_ids
            if self._logprobs is not None:
                self._logprobs.read(output, ids)
            self._ids += ids
            count = len(self._ids)
            if count >= self._interval and not self._defer(self.flush, count):
                self.flush()
        except Exception as error:  # noqa: BLE001  vLLM's loop would end with all requests
            self.fail(error)
            return True
        return False

    def _take(self, output: Any) -> bool:
        """Take an output that is the first or the last one, or has more than tokens."""
        if self.repeated and (output := self.repeated.new_of(output)) is None:
            return False
        for name, usual in self._unknown:
            self._check_unknown(name, usual, getattr(output, name))
        ids, reason, stop_reason = output.new_token_ids, output.finish_reason, output.stop_reason
        if self.is_prefilling:
            self.is_prefilling, self._num_cached = False, compat.cached_tokens(output)
        if reason is not None and str(reason) == "error":
            # It has the token that vLLM has refused.
            self._fail_output(getattr(output, "error", None))
        if ids and self._began is None:
            self._began = time.monotonic()
        if self._logprobs is not None:
            self._logprobs.read(output, ids)
        self._ids += ids
        if self._stops or reason is not None:
            is_stop = reason == names.FinishReason.STOP
            stop = self._decode(ids if self._stops else self._ids, is_stop=is_stop)
            if stop:
                reason, stop_reason = "stop", stop
            if self._stops and self._logprobs is not None:
                self._note_text(is_last=reason is not None)
        if reason is not None:
            self._send(str(reason), stop_reason)
            self._of.finish(self._id)
            return True
        if ids and not self._is_whole:
            self._offer()
        self._is_plain = bool(ids) and not (self._stops or self.repeated or self._unknown)
        return False

    def _note_text(self, *, is_last: bool) -> None:
        """Note what a step's tokens add to the text, however many leave together."""
        new = self._text(is_last, True)
        self._texts += [""] * (len(self._ids) - len(self._texts))
        if self._texts:
            self._texts[-1] += new

    def _offer(self) -> None:
        count = len(self._ids)
        # The first one waits for no other.
        is_enough = count >= self._interval or not self._num_tokens
        if is_enough and not self._defer(self.flush, count):
            self.flush()

    def _decode(self, ids: list[int], *, is_stop: bool = False) -> str | None:
        """Have tokens decoded; return the stop string that they end in.

        Args:
            is_stop: whether the last one is a stop token, which has no text.
        """
        earlier = compat.num_output_tokens(self._detokenizer)
        stop: str | None = self._update(list(ids), is_stop)
        if stop:
            # A step may bring more tokens than those up to the stop string.
            surplus = len(ids) - (compat.num_output_tokens(self._detokenizer) - earlier)
            if surplus > 0:
                del self._ids[-surplus:]
                if self._logprobs is not None:
                    self._logprobs.drop(surplus)
        return stop

    def flush(self) -> None:
        if not self._ids:
            return
        try:
            if not self._stops:
                self._update(self._ids, False)
            self._send(None, None)
        except Exception as error:  # noqa: BLE001  it must not end the other requests
            self.fail(error)

    def _send(self, reason: str | None, stop_reason: str | int | None) -> None:
        ids, self._ids = self._ids, []
        is_first = not self._num_tokens
        self._num_tokens += len(ids)
        text = self._text(reason is not None, True)
        texts, self._texts = self._texts, []
        if texts:
            text = "".join(texts) + text
        positions, total = self._logprobs.taken() if self._logprobs else (None, None)
        piece = Piece(self._index, text, ids, positions, total, reason, stop_reason, texts or None)
        chunk = self._chunk(piece)
        if chunk is None:
            return
        if self._num_cached is not None:
            chunk.num_cached_tokens, self._num_cached = self._num_cached, None
        if is_first and self._logprobs and (of_prompt := self._logprobs.of_prompt()):
            self._of.maker.add_prompt(chunk, of_prompt)
        if self._is_whole and self._began is not None:
            chunk.decode_seconds = time.monotonic() - self._began
        self._give(chunk)

    def _check_unknown(self, name: str, usual: Any, value: Any) -> None:
        """Fail an answer that has a member which no release had; vLLM makes the next ones."""
        is_plain = isinstance(value, int | str | list | tuple | dict)
        if value is None or (is_plain and (not value or value == usual)):
            return
        came = f"{name}: {value!r}"[:_MOST_CHARACTERS]
        fast_paths.turn_off("own_streams", "outputs of the core with known members", came)
        raise EngineError(f"vLLM's core gives an answer a member that is not known: {came}")

    def _fail_output(self, given: Any) -> None:
        """Send what came before vLLM has failed on the request, then fail it.

        Args:
            given: vLLM's RequestError, which says why (0.33); None if it does not.
        """
        if self._ids and not self._is_whole:
            self.flush()
        if given is not None:
            raise given.to_exception()
        raise self._of.maker.failure(self._num_tokens + len(self._ids))

    def replay(self, groups: Sequence[Sequence[int]], cumulative_logprob: float | None) -> None:
        """Bring the answer to where its client is."""
        for group in groups:
            if self._update(list(group), False):
                raise finished_error()
            text = self._text(False, True)
            self._num_tokens += len(group)
            if self._of.maker.writes_prefix:
                chunk = self._chunk(Piece(self._index, text, group))
                if chunk is not None:
                    chunk.ids = b""
                    self._give(chunk)
            if self._logprobs is not None:
                self._logprobs.know(group, cumulative_logprob)

    def fail(self, error: Exception) -> None:
        self._of.fail(error)


def requests_of(engine: Any) -> list[Any]:
    processor = engine.output_processor
    return [*processor.request_states.values(), *getattr(processor, "answers", {}).values()]
