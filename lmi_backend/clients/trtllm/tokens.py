"""TensorRT-LLM's clients that call `preprocessing` and `postprocessing` themselves.

Names and shapes: tensorrtllm_backend's all_models/inflight_batcher_llm/{pre,post}processing.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec

from lmi_backend.clients.reply import ParsedRequest, Response
from lmi_backend.errors import HTTP_ERROR, EngineError, HttpError, LmiError, RequestError
from lmi_backend.generation import Chunk, HttpChunk, HttpRequest
from lmi_backend.tokenization import DECODE_PATH, ENCODE_PATH, Encoded, Texts, TokenIds
from lmi_backend.unreadable import UNREADABLE

Row = Mapping[str, list[Any]]


def read_preprocessing(rows: Sequence[Row]) -> ParsedRequest:
    """Read a request for a prompt's tokens; raises RequestError."""
    row = _only(rows, "QUERY", "REQUEST_OUTPUT_LEN")
    if any(row.get("DECODER_QUERY", ())):
        raise RequestError("is not served", field="DECODER_QUERY", accepted="an empty string")
    texts = Texts(
        str(row["QUERY"][0]),
        bad=_words(row.get("BAD_WORDS_DICT", ())),
        stop=_words(row.get("STOP_WORDS_DICT", ())),
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
    """Read a request for the text of tokens; raises RequestError."""
    row = _only(rows, "TOKENS_BATCH", "SEQUENCE_LENGTH")
    ids, lengths = row["TOKENS_BATCH"], row["SEQUENCE_LENGTH"]
    if len(lengths) > 1:
        problem = "is for several beams"
        raise RequestError(problem, field="SEQUENCE_LENGTH", value=lengths, accepted="one length")
    if not 0 <= lengths[0] <= len(ids):
        accepted = f"0 to {len(ids)}, the length of TOKENS_BATCH"
        raise RequestError(
            "is out of range", field="SEQUENCE_LENGTH", value=lengths[0], accepted=accepted
        )
    body = msgspec.json.encode(TokenIds(ids[: lengths[0]]))
    return ParsedRequest(HttpRequest(DECODE_PATH, body), DecodeReply())


@dataclass
class DecodeReply:
    """The text of some tokens."""

    outputs: frozenset[str] = frozenset()
    _buffered: list[bytes] = field(default_factory=list)

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        for chunk in chunks:
            if isinstance(chunk, HttpChunk):
                self._buffered.append(chunk.data)
                if chunk.status >= HTTP_ERROR:
                    raise HttpError(chunk.status, chunk.data.decode("utf-8", "replace"))
        if not is_last:
            return []
        try:
            return [self._read(b"".join(self._buffered))]
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


def _only(rows: Sequence[Row], *names: str) -> Row:
    """Return the one row, which has what is needed."""
    if len(rows) > 1:
        problem = f"has {len(rows)} rows"
        raise RequestError(problem, field="the batch", accepted="one row")
    for name in names:
        if not rows[0].get(name):
            raise RequestError("is missing", field=name)
    return rows[0]


def _words(given: Iterable[str]) -> list[str]:
    """Return the strings of tensors; each tensor may have several, with commas between them."""
    return [word for line in csv.reader(map(str, given)) for word in line if word]


def _flat(words: list[list[int]]) -> list[int]:
    """Return ids and then the end of each list, equally many, as the core model reads them."""
    ids = [number for word in words for number in word]
    ends = [*accumulate(map(len, words))]
    size = max(1, len(ids), len(ends))
    return [*ids, *[0] * (size - len(ids)), *ends, *[-1] * (size - len(ends))]
