"""Doubles of vLLM's smaller classes: its names, and its algorithms where an answer needs them."""

import asyncio
import codecs
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from pydantic import BaseModel

PROMPT = [101, 102, 103]
BYTES = {
    **{number: bytes([number]) for number in range(8, 127)},
    1: b"word ", 2: b"\xc3", 3: b"\xa9", 4: b"STO", 5: b"P!", 6: b"", 7: b'"\n',
}  # fmt: skip
"""Of tokens: 2 and 3 are the halves of one letter, 4 and 5 have a stop string between them."""


class FinishReason(IntEnum):
    """As vLLM's."""

    STOP, LENGTH, ABORT, ERROR, REPETITION = range(5)

    def __str__(self) -> str:
        return self.name.lower()


class Kind(Enum):
    """RequestOutputKind."""

    CUMULATIVE, DELTA, FINAL_ONLY = range(3)


@dataclass
class Params:
    """SamplingParams."""

    n: int = 1
    output_kind: Kind = Kind.DELTA
    temperature: float = 0.0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    include_stop_str_in_output: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    stream_interval: int | None = None
    frequency_penalty: float = 0.0
    structured_outputs: Any = None
    extra_args: Any = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    def clone(self) -> "Params":
        return copy(self)


@dataclass
class Request:
    """EngineCoreRequest."""

    request_id: str
    prompt_token_ids: list[int] | None = field(default_factory=lambda: list(PROMPT))
    sampling_params: Any = field(default_factory=Params)
    prompt_embeds: Any = None
    lora_request: Any = None


class Output(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """EngineCoreOutput."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    new_prompt_logprobs_tensors: Any = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    events: Any = None
    prefill_stats: Any = None


class Lists(NamedTuple):
    """LogprobsLists."""

    logprob_token_ids: Any
    logprobs: Any
    sampled_token_ranks: Any
    cu_num_generated_tokens: Any = None


def lists(ids: Sequence[int], *others: int) -> Lists:
    """Return what a core says of tokens, with candidates that are the same for each."""
    rows = [[each, *others] for each in ids]
    logprobs = [[-(each % 8 + 1) / 8 for each in row] for row in rows]
    ranks = np.array([2] * len(ids), np.int32)
    return Lists(np.array(rows, np.int32), np.array(logprobs, np.float32), ranks)


class Logprob(NamedTuple):
    """As vLLM's."""

    logprob: float
    rank: int | None
    decoded_token: str | None


class Tokenizer:
    """Has one token for each of BYTES."""

    all_special_ids = (6,)

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(BYTES[each] for each in ids).decode(errors="replace")

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Detokenizer:
    """IncrementalDetokenizer, which makes no text."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []

    @classmethod
    def from_new_request(cls, tokenizer: Any, request: Any) -> "Detokenizer":
        return Detokenizer() if tokenizer is None else TextDetokenizer(request)

    def num_output_tokens(self) -> int:
        return len(self.token_ids)

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        self.token_ids.extend(new_token_ids)
        return None

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        return ""


class TextDetokenizer(Detokenizer):
    """Finds stop strings, and keeps text back in which one may begin."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        params = request.sampling_params
        self.stop, self._is_shown = params.stop, params.include_stop_str_in_output
        self._held = 0 if self._is_shown else max(map(len, self.stop), default=1) - 1
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._given = "", 0

    def update(self, new_token_ids: list[int], stop_terminated: bool) -> str | None:
        first, ends = len(self.token_ids), [len(self._text)]
        for place, token in enumerate(new_token_ids, 1):
            is_left_out = stop_terminated and not self._is_shown and place == len(new_token_ids)
            self._text += "" if is_left_out else self._decoder.decode(BYTES[token])
            self.token_ids.append(token)
            ends.append(len(self._text))
        found: list[tuple[int, str]] = []
        for stop in self.stop:
            start = self._text.find(stop, max(0, ends[0] + 1 - len(stop)))
            found += [(start + len(stop), stop)] if start >= 0 else []
        if not found:
            return None
        end, stop = min(found)
        del self.token_ids[first + next(n for n, each in enumerate(ends) if each >= end) :]
        self._text = self._text[: end if self._is_shown else end - len(stop)]
        return stop

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        assert delta
        end = max(self._given, len(self._text) - (0 if finished else self._held))
        text, self._given = self._text[self._given : end], end
        return text


class LogprobsProcessor:
    """As vLLM's, with its search for the text of a part of a letter."""

    def __init__(self, tokenizer: Any, params: Any) -> None:
        self.tokenizer, self.num_logprobs = tokenizer, params.num_logprobs
        has_own, has_prompt = params.num_logprobs is not None, params.prompt_logprobs is not None
        self.cumulative_logprob: float | None = 0.0 if has_own else None
        self.logprobs: Any = [] if has_own else None
        self.prompt_logprobs: Any = [None] if has_prompt else None

    @classmethod
    def from_new_request(cls, tokenizer: Any, request: Any) -> "LogprobsProcessor":
        return cls(tokenizer, request.sampling_params)

    def update_from_output(self, output: Any) -> None:
        if output.new_logprobs is not None:
            ids, logprobs, ranks, _ = output.new_logprobs
            for row, values, rank in zip(ids.tolist(), logprobs.tolist(), ranks, strict=False):
                before = [next(iter(each)) for each in self.logprobs[-4:]]
                self.cumulative_logprob += values[0]
                every = zip(
                    [rank.tolist(), *range(1, self.num_logprobs + 1)], row, values, strict=False
                )
                self.logprobs.append(
                    {each: Logprob(value, n, self._own(each, before)) for n, each, value in every}
                )
        if output.new_prompt_logprobs_tensors is not None:
            ids, logprobs, ranks, *_ = output.new_prompt_logprobs_tensors
            for (each, *_), (value, *_), n in zip(ids, logprobs, ranks, strict=True):
                self.prompt_logprobs.append({each: Logprob(value, n, self._own(each, []))})

    def _own(self, token: int, before: list[int]) -> str | None:
        if self.tokenizer is None:
            return None
        decode = self.tokenizer.decode
        if not decode([token]).endswith("\ufffd"):
            return str(decode([token]))
        for count in range(1, len(before) + 1):
            context = before[-count:]
            text = decode([*context, token])
            if text.endswith("\ufffd"):
                continue
            while context and decode(context[-1:]).endswith("\ufffd"):
                context.pop()
            return str(text.removeprefix(decode(context)))
        return ""

    def pop_prompt_logprobs(self) -> Any:
        found = self.prompt_logprobs
        self.prompt_logprobs = [] if found else found
        return found


@dataclass
class CompletionOutput:
    """As vLLM's."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: Any = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestOutput:
    """As vLLM's."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: Any
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None = None

    def add(self, later: "RequestOutput", aggregate: bool) -> None:
        self.finished |= later.finished
        for new in later.outputs:
            own = next((each for each in self.outputs if each.index == new.index), None)
            if own is None:
                self.outputs.append(new)
                continue
            own.text += new.text
            own.token_ids = [*own.token_ids, *new.token_ids]
            if new.logprobs:
                own.logprobs.extend(new.logprobs)
            own.cumulative_logprob = new.cumulative_logprob
            own.finish_reason, own.stop_reason = new.finish_reason, new.stop_reason


class Collector:
    """RequestOutputCollector."""

    def __init__(self, output_kind: Kind, request_id: str) -> None:
        self.output: Any = None
        self.ready = asyncio.Event()

    def put(self, output: Any) -> None:
        if self.output is None or isinstance(output, Exception):
            self.output = output
            self.ready.set()
        else:
            self.output.add(output, aggregate=True)

    async def get(self) -> Any:
        while self.output is None:
            await self.ready.wait()
        return self.get_nowait()

    def get_nowait(self) -> Any:
        output, self.output = self.output, None
        self.ready.clear()
        if isinstance(output, Exception):
            raise output
        return output


class ClientError(ValueError):
    """VLLMClientError."""


class DeltaMessage(BaseModel):
    """As vLLM's."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] = []
