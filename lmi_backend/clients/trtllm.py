"""What clients of Triton's TensorRT-LLM backend are: they send tensors, and have no paths.

Requests are those of its ensemble, core model and LLM API model. Names and defaults are those of
tensorrtllm_backend's ensemble and tensorrt_llm/config.pbtxt, r24.10 to r25.05, and of `llmapi` in
TensorRT-LLM's triton_backend. Some clients call `preprocessing` and `postprocessing` themselves:
their names and shapes are those of all_models/inflight_batcher_llm/{pre,post}processing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import msgspec

from lmi_backend.clients.openai import HttpForm, RefusingForm
from lmi_backend.clients.parameters import (
    Requested,
    answers_wanted,
    make_sampling,
    read_parameters,
    scalars,
)
from lmi_backend.clients.spec import ClientSpec, ParsedRequest, Response, rename_prompt
from lmi_backend.clients.triton import triton_failure
from lmi_backend.clients.values import MAX_WEIGHT, Prompt, prompt_text, read_prompts
from lmi_backend.clients.vllm import RETURNS, requested_outputs
from lmi_backend.engine_config import Context
from lmi_backend.errors import EngineError, LmiError, RequestError
from lmi_backend.generation import Chunk, Delta, GenerateRequest, HttpRequest
from lmi_backend.json_text import UNREADABLE
from lmi_backend.tokenization import DECODE_PATH, ENCODE_PATH, Encoded, Texts, TokenIds

_MAX_TOKENS: Final = 16
_GUIDES: Final = {
    "json": {"json_object": True},
    "json_schema": "json",
    "regex": "regex",
    "ebnf_grammar": "grammar",
    "structural_tag": "structural_tag",
}
"""guided_decoding_guide_type to the way vLLM calls it; json takes no guide."""
_UNSERVED: Final = (
    "decoder_text_input", "decoder_input_ids", "prompt_embedding_table", "embedding_bias_words",
    "embedding_bias_weights", "lora_weights", "lora_config", "draft_input_ids", "image_url",
)  # fmt: skip

_NOT_PARAMETERS: Final = frozenset(
    {
        "text_input", "input_ids", "input_lengths", "stop_words_list", "bad_words_list",
        "return_stop_reason", *RETURNS, *_UNSERVED,
    }
)  # fmt: skip


def read_trtllm(
    rows: Sequence[Mapping[str, list[Any]]], named: Mapping[str, object], context: Context
) -> ParsedRequest:
    """Read a request, whose batch may have several rows.

    Args:
        rows: for each row the values of its tensors.
        named: all parameters that came on their own.

    Raises:
        RequestError: naming the field that is wrong.
    """
    dropped: list[str] = []
    read = [_read_row(row, named, context, dropped) for row in rows]
    requests = tuple(request for request, _ in read)
    first = requests[0]
    for request in requests:
        if (request.n, request.stream) != (first.n, first.stream):
            problem = "differ between the rows of the batch"
            raise RequestError(problem, field="stream and num_return_sequences")
    outputs = requested_outputs(rows[0])
    if "return_stop_reason" in rows[0] and rows[0]["return_stop_reason"][0]:
        outputs |= {"stop_reason"}
    has_ids = "input_ids" in rows[0]
    is_llmapi = any(name.startswith("sampling_param_") for name in (*rows[0], *named))
    return ParsedRequest(
        requests,
        TrtllmReply(
            n=first.n,
            prompts=tuple(_prefix(request, requested, first.stream) for request, requested in read),
            outputs=outputs,
            shows_logprobs=bool(read[0][1].get("return_log_probs")),
            # Callers that tokenise themselves read ids, not text.
            shows_ids=has_ids,
            # The LLM API model streams the whole text so far.
            is_cumulative=is_llmapi and first.stream,
        ),
        tuple(dict.fromkeys(dropped)),
    )


def stop_id(request_id: str) -> str:
    """Return the id of the request that a `stop` cancels: its own. Raises RequestError: none."""
    if not request_id:
        # The peer's words.
        problem = "must be provided for request cancellation"
        accepted = "the id of the running request, as this request's id"
        raise RequestError(problem, field="A request id", accepted=accepted)
    return request_id


def _read_row(
    row: Mapping[str, list[Any]], named: Mapping[str, object], context: Context, dropped: list[str]
) -> tuple[GenerateRequest, Requested]:
    _refuse_unserved(row)
    given = dict(named) | _parameters(row)
    requested = read_parameters(given, dropped=dropped, refuses_unserved=True)
    stream = bool(requested.get("stream", False))
    request = GenerateRequest(
        prompt=_prompt(row),
        sampling=make_sampling(_defaults(requested) | _words(row, requested) | _guide(requested)),
        stream=stream,
        adapter=_adapter(requested, context),
        priority=requested.get("priority", 0),
        n=answers_wanted(requested),
        logprobs=0 if _needs_tokens(row, requested) else None,
    )
    return request, requested


def _needs_tokens(row: Mapping[str, list[Any]], requested: Requested) -> bool:
    wants = row.get("return_cumulative_logprob", [False])[0] or requested.get("return_log_probs")
    return bool(wants) or "input_ids" in row


def _prompt(row: Mapping[str, list[Any]]) -> Prompt:
    if "input_ids" not in row:
        (prompt,), _ = read_prompts("text_input", row.get("text_input", [""])[0])
        return prompt
    ids = row["input_ids"]
    length = row.get("input_lengths", [len(ids)])[0]
    if not 0 < length <= len(ids):
        accepted = f"1 to {len(ids)}, the length of input_ids"
        raise _out_of_range("input_lengths", length, accepted)
    (prompt,), _ = read_prompts("input_ids", [ids[:length]])
    return prompt


def _parameters(row: Mapping[str, list[Any]]) -> dict[str, object]:
    named = {name: row[name] for name in row.keys() - _NOT_PARAMETERS}
    if named.get("stop") == [False]:
        # The core model's flag; a list of strings is the other clients' stop.
        del named["stop"]
    return scalars(named)


def _refuse_unserved(row: Mapping[str, list[Any]]) -> None:
    for name in _UNSERVED:
        # Some clients send an empty string for "none".
        if any(value not in ("", 0) for value in row.get(name, ())):
            raise RequestError("is not served", field=name)


def _defaults(requested: Requested) -> Requested:
    """Apply TensorRT-LLM's: greedy, unless top_k or top_p leave a choice."""
    is_greedy = requested.get("top_k", 0) in (0, 1) and not requested.get("top_p")
    chosen = {"temperature": 0.0} if is_greedy else {}
    ends = (requested["end_id"],) if requested.get("end_id", -1) >= 0 else ()
    usual = {"max_tokens": _MAX_TOKENS, "temperature": 1.0, "stop_token_ids": ends}
    return usual | requested | chosen


def _words(row: Mapping[str, list[Any]], requested: Requested) -> Requested:
    """Read the core model's lists of token ids: two rows, the ids and the end of each list."""
    words: Requested = {}
    if stops := list(_single_tokens("stop_words_list", row)):
        words["stop_token_ids"] = (*requested.get("stop_token_ids", ()), *stops)
    if bad := list(_single_tokens("bad_words_list", row)):
        weights = dict.fromkeys(bad, -MAX_WEIGHT)
        words["extra.logit_bias"] = requested.get("extra.logit_bias", {}) | weights
    return words


def _single_tokens(name: str, row: Mapping[str, list[Any]]) -> Iterator[int]:
    flat = row.get(name, [])
    ids, ends = flat[: len(flat) // 2], flat[len(flat) // 2 :]
    begin = 0
    for end in ends:
        if end < 0:
            return
        if not begin <= end <= len(ids):
            accepted = f"offsets that rise to at most {len(ids)}"
            raise RequestError("has a wrong offset", field=name, value=end, accepted=accepted)
        if end - begin > 1:
            problem = "holds a sequence of several tokens"
            accepted = f"sequences of one token, or text in {name.removesuffix('_list')}"
            raise RequestError(problem, field=name, accepted=accepted)
        if end > begin:
            yield ids[begin]
        begin = end


def _guide(requested: Requested) -> Requested:
    kind = requested.get("guide_type", "")
    if not kind:
        return {}
    name = _GUIDES.get(kind)
    if name is None:
        problem, given = "is not a kind of guide", "guided_decoding_guide_type"
        raise RequestError(problem, field=given, value=kind, accepted=", ".join(_GUIDES))
    structure = {name: requested.get("guide", "")} if isinstance(name, str) else name
    return {"extra.structured_outputs": structure}


def _adapter(requested: Requested, context: Context) -> str:
    names: tuple[str, ...] = requested.get("adapter", ())
    number: int = requested.get("lora_number", 0)
    if names or not number:
        return names[0] if names else ""
    adapters: list[str] = list(context.adapters)
    if number > len(adapters):
        numbered = (
            ", ".join(f"{index} {name}" for index, name in enumerate(adapters, 1))
            or "none is loaded"
        )
        raise RequestError("is unknown", field="lora_task_id", value=number, accepted=numbered)
    return adapters[number - 1]


def _prefix(request: GenerateRequest, requested: Requested, stream: bool) -> Prompt:
    """Return the prompt where it comes back: by default, but never in a stream."""
    return "" if stream or requested.get("exclude_prompt", False) else request.prompt


@dataclass(kw_only=True)
class TrtllmReply:
    """One response for each sequence, told apart by `batch_index` and `sequence_index`."""

    n: int = 1
    prompts: tuple[Prompt, ...] = ()
    outputs: frozenset[str] = frozenset()
    shows_logprobs: bool = False
    shows_ids: bool = False
    is_cumulative: bool = False
    _texts: dict[int, str] = field(default_factory=dict)
    _latest: dict[int, Delta] = field(default_factory=dict)

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        return [self._response(chunk) for chunk in chunks if isinstance(chunk, Delta)]

    def remaining(self, buffered: Sequence[Delta] = ()) -> Iterator[Delta]:
        """Yield a last delta, without text, for each answer that has none.

        Args:
            buffered: deltas that have come and were not made responses of.
        """
        latest = self._latest | {delta.index: delta for delta in buffered}
        for index in range(len(self.prompts) * self.n):
            last = latest.get(index, Delta())
            if not last.is_last:
                yield Delta(
                    index=index,
                    finish_reason="abort",
                    num_prompt_tokens=last.num_prompt_tokens,
                    cumulative_logprob=last.cumulative_logprob,
                )

    def failure(self, error: LmiError) -> LmiError:
        return rename_prompt(error, "input_ids" if self.shows_ids else "text_input")

    def _response(self, delta: Delta) -> Response:
        self._latest[delta.index] = delta
        prompt_index, sequence = divmod(delta.index, self.n)
        response: Response = {}
        if len(self.prompts) * self.n > 1:
            response |= {"batch_index": prompt_index, "sequence_index": sequence}
        if self.shows_ids:
            prompt = self.prompts[prompt_index]
            ids = [*(prompt if isinstance(prompt, tuple) else ()), *(t.id for t in delta.tokens)]
            response |= {"output_ids": ids, "sequence_length": len(ids)}
        else:
            response["text_output"] = self._text(delta, prompt_index)
        if self.shows_logprobs:
            response["cum_log_probs"] = delta.cumulative_logprob or 0.0
            response["output_log_probs"] = [token.logprob or 0.0 for token in delta.tokens]
        return response | self._optional(delta)

    def _text(self, delta: Delta, prompt_index: int) -> str:
        prefix = prompt_text(self.prompts[prompt_index])
        if not self.is_cumulative:
            return prefix + delta.text
        self._texts[delta.index] = self._texts.get(delta.index, prefix) + delta.text
        return self._texts[delta.index]

    def _optional(self, delta: Delta) -> Response:
        values: Response = {
            "finish_reason": str(delta.finish_reason),
            "stop_reason": str(delta.stop_reason),
            "cumulative_logprob": delta.cumulative_logprob or 0.0,
            "num_input_tokens": delta.num_prompt_tokens,
            "num_output_tokens": delta.num_tokens,
        }
        return {name: value for name, value in values.items() if name in self.outputs}


Row = Mapping[str, list[Any]]


def read_preprocessing(rows: Sequence[Row]) -> ParsedRequest:
    row = _only(rows, "QUERY", "REQUEST_OUTPUT_LEN")
    if any(row.get("DECODER_QUERY", ())):
        raise RequestError("is not served", field="DECODER_QUERY", accepted="an empty string")
    texts = Texts(
        str(row["QUERY"][0]),
        bad=_split_words(row.get("BAD_WORDS_DICT", ())),
        stop=_split_words(row.get("STOP_WORDS_DICT", ())),
    )
    given: Response = {
        "REQUEST_OUTPUT_LEN": row["REQUEST_OUTPUT_LEN"],
        # For a model that encodes and decodes: none asks for anything.
        "DECODER_INPUT_ID": [0],
        "REQUEST_DECODER_INPUT_LEN": [1],
    }
    for theirs, ours in (("END_ID", "OUT_END_ID"), ("PAD_ID", "OUT_PAD_ID")):
        if theirs in row:
            given[ours] = row[theirs]
    body = msgspec.json.encode(texts)
    return ParsedRequest(HttpRequest(ENCODE_PATH, body), EncodeReply(given=given))


def read_postprocessing(rows: Sequence[Row]) -> ParsedRequest:
    row = _only(rows, "TOKENS_BATCH", "SEQUENCE_LENGTH")
    ids, lengths = row["TOKENS_BATCH"], row["SEQUENCE_LENGTH"]
    if len(lengths) > 1:
        problem = "is for several beams"
        raise RequestError(problem, field="SEQUENCE_LENGTH", value=lengths, accepted="one length")
    if not 0 <= lengths[0] <= len(ids):
        accepted = f"0 to {len(ids)}, the length of TOKENS_BATCH"
        raise _out_of_range("SEQUENCE_LENGTH", lengths[0], accepted)
    body = msgspec.json.encode(TokenIds(ids[: lengths[0]]))
    return ParsedRequest(HttpRequest(DECODE_PATH, body), DecodeReply())


@dataclass
class DecodeReply:
    outputs: frozenset[str] = frozenset()
    _form: HttpForm = field(default_factory=RefusingForm)
    _data: bytes = b""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        self._data += self._form.write([*chunks])
        if not is_last:
            return []
        try:
            return [self._read(self._data)]
        except UNREADABLE:
            raise EngineError("the model's engine has no tokenizer") from None

    def failure(self, error: LmiError) -> LmiError:
        return error

    def _read(self, data: bytes) -> Response:
        return {"OUTPUT": msgspec.json.decode(data, type=str)}


@dataclass
class EncodeReply(DecodeReply):
    """A prompt's tokens, with what its client gave that continues to the model."""

    given: Response = field(default_factory=dict)

    def _read(self, data: bytes) -> Response:
        encoded = msgspec.json.decode(data, type=Encoded)
        return {
            "INPUT_ID": encoded.ids,
            "REQUEST_INPUT_LEN": [len(encoded.ids)],
            "BAD_WORDS_IDS": _flat(encoded.bad),
            "STOP_WORDS_IDS": _flat(encoded.stop),
            "OUT_END_ID": [encoded.end_id],
            "OUT_PAD_ID": [encoded.pad_id],
            **self.given,
        }


def _out_of_range(field: str, value: int, accepted: str) -> RequestError:
    return RequestError("is out of range", field=field, value=value, accepted=accepted)


def _only(rows: Sequence[Row], *names: str) -> Row:
    if len(rows) > 1:
        problem = f"has {len(rows)} rows"
        raise RequestError(problem, field="the batch", accepted="one row")
    for name in names:
        if not rows[0].get(name):
            raise RequestError("is missing", field=name)
    return rows[0]


def _split_words(given: Iterable[str]) -> list[str]:
    """Return the strings of tensors; each tensor may have several, with commas between them."""
    return [word for line in csv.reader(map(str, given)) for word in line if word]


def _flat(words: list[list[int]]) -> list[int]:
    """Return ids and then the end of each list, equally many, as the core model reads them."""
    ids = [number for word in words for number in word]
    ends = [*accumulate(map(len, words))]
    size = max(1, len(ids), len(ends))
    return [*ids, *[0] * (size - len(ids)), *ends, *[-1] * (size - len(ends))]


SPEC: Final = ClientSpec(
    name="trtllm",
    title="Triton's TensorRT-LLM backend",
    failure=triton_failure,
    form=HttpForm,
    paths=(),
)
