"""tests/wire: for each client, requests → what is asked of the engine → chunks → responses.

`UPDATE_GOLDEN=1` writes what is made today into the files; the diff is reviewed.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lmi_backend.clients.request import read_request
from lmi_backend.clients.spec import ParsedRequest
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import LmiError
from lmi_backend.generation import (
    Chunk,
    Delta,
    GenerateRequest,
    HttpChunk,
    HttpRequest,
    Sampling,
    Token,
)

FOLDER = Path(__file__).resolve().parents[1] / "wire"
FILES = sorted(FOLDER.glob("*.json"))


def context(case: dict[str, Any]) -> Context:
    """Return what a case says of its model."""
    given = dict(case.get("context", {}))
    adapters, is_custom = given.pop("adapters", ()), given.pop("is_custom", False)
    return Context(ClientSettings(**given), adapters, is_custom, has_lora=bool(adapters))


def made(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a case's request becomes."""
    rows = case.get("rows") or [case["inputs"]]
    try:
        is_trtllm = case.get("is_trtllm", False)
        taken = read_request(rows, case.get("parameters", {}), context(case), is_trtllm=is_trtllm)
        answer: dict[str, Any] = {"work": work(taken)}
        if taken.dropped:
            answer["dropped"] = list(taken.dropped)
        if chunks := chunks_of(case):
            taken.reply.outputs |= {"headers"}
            answer["responses"] = responses(taken, chunks)
    except LmiError as error:
        return {"error": {"code": error.code, "text": str(error)}}
    return answer


def responses(taken: ParsedRequest, chunks: list[Chunk]) -> list[Any]:
    answers = []
    for place, chunk in enumerate(chunks, start=1):
        answers += taken.reply.responses([chunk], is_last=place == len(chunks))
    return [plain(answer) for answer in answers]


def work(taken: ParsedRequest) -> Any:
    if isinstance(taken.work, tuple):
        return [fields_of(request) for request in taken.work]
    if isinstance(taken.work, HttpRequest):
        return {"path": taken.work.path, "body": taken.work.body.decode()} | (
            {"headers": taken.work.headers} if taken.work.headers else {}
        )
    return {type(taken.work).__name__: getattr(taken.work, "body", {})}


def fields_of(struct: Any) -> dict[str, Any]:
    """Return the fields of a request that differ from their defaults."""
    default = Sampling() if isinstance(struct, Sampling) else GenerateRequest("")
    return {
        name: plain(fields_of(value) if isinstance(value, Sampling) else value)
        for name in struct.__struct_fields__
        if (value := getattr(struct, name)) != getattr(default, name)
    }


def chunks_of(case: dict[str, Any]) -> list[Chunk]:
    chunks, kind = case.get("chunks", []), case.get("type", "x")
    return [
        *(Delta(**delta | tokens(delta)) for delta in case.get("deltas", [])),
        *(
            HttpChunk(
                text.encode(), place == len(chunks), case.get("status", 200), {"content-type": kind}
            )
            for place, text in enumerate(chunks, start=1)
        ),
    ]


def tokens(delta: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(token(item) for item in delta[name])
        for name in ("tokens", "prompt_tokens")
        if name in delta
    }


def token(item: dict[str, Any]) -> Token:
    return Token(**item | {"top": tuple(token(other) for other in item.get("top", ()))})


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)


def cases() -> list[tuple[Path, dict[str, Any]]]:
    return [(file, case) for file in FILES for case in json.loads(file.read_text("utf-8"))]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{file.stem}: {case['name']}") for file, case in cases()]
)
def test_a_request_is_read_and_answered_as_reviewed(case: dict[str, Any]) -> None:
    assert made(case) == case["made"]


if os.environ.get("UPDATE_GOLDEN"):
    for path in FILES:
        new = [case | {"made": made(case)} for case in json.loads(path.read_text("utf-8"))]
        path.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
