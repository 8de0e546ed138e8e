"""Requests that nobody should send, for tests of what happens when somebody does."""

import json
import random
from typing import Any

from lmi_backend.clients.parameters import FIELDS
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.repository.variants import VARIANTS

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e308, 1e999,
    float("nan"), "", "a", "a b", "\ud800", "\x00", "nan", "1e999", "7", "true", "[]", "{}",
    "[" * 99,
    '{"a":', [], [""], ["a"], ["a", 1], [1], [[1, 2]], [None], [[]], [[[]]], {},
    {"a": 1},
    {"type": "json_schema"}, {"type": []}, {"5": 1}, {"5": "x"}, {"x": float("inf")},
    "\u202e" * 50, "x" * 5000, list(range(300)), {"a": {"a": {"a": {}}}},
)  # fmt: skip
NAMES = (
    *FIELDS, "inputs", "prompt", "messages", "input", "requestType", "parameters", "stream",
    "model",
    "text_input", "request", "input_ids", "input_lengths", "sampling_parameters", "image", "path",
    "headers", "embedding_request", "stop_words_list", "bad_words_list", "name", "", "\ud800", "id",
    "return_logprobs", "return_stop_reason", "typical_p", "beam_width", "triton_x", "lora_weights",
)  # fmt: skip
CONTEXTS = (
    Context(),
    Context(ClientSettings(dialect="legacy"), adapters=("a", "b")),
    Context(ClientSettings(tgi_compat=True, output_formatter="sse")),
    Context(ClientSettings(is_embedding=True)),
    Context(is_custom=True),
)
NAMES_WRITTEN, VALUES_WRITTEN = [*map(json.dumps, NAMES)], [*map(json.dumps, VALUES)]
# A tensor's text is UTF-8, or the codec refuses it.
TEXTS = [item for item in VALUES if isinstance(item, str) and item != "\ud800"]
KINDS = {tensor.name: tensor.data_type for entry in VARIANTS.values() for tensor in entry.inputs}


def value(chance: random.Random, depth: int = 0) -> Any:
    if depth < 2 and chance.random() < 0.15:
        return {chance.choice(NAMES): value(chance, depth + 1) for _ in range(3)}
    if depth < 2 and chance.random() < 0.1:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return chance.choice(VALUES)


def tensor(chance: random.Random, name: str) -> list[Any]:
    """What Triton lets through for an input of that name: values of its type."""
    kind = KINDS.get(name, "TYPE_STRING")
    size = chance.choice((0, 1, 1, 1, 2, 5))
    if kind == "TYPE_BOOL":
        return [chance.random() < 0.5 for _ in range(size)]
    if kind == "TYPE_FP32":
        return [chance.choice((0.0, 0.5, -1.0, float("nan"), float("inf"))) for _ in range(size)]
    if kind != "TYPE_STRING":
        return [chance.choice((0, 1, -1, 2, 9, 2**31 - 1)) for _ in range(size)]
    return [text(chance) for _ in range(size)]


def text(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return written(chance, chance.randrange(5)).replace(
            "a b", chance.choice(("a b", '"', "\\"))
        )
    return chance.choice(TEXTS)


def written(chance: random.Random, size: int, depth: int = 0) -> str:
    """A JSON object, joined of what is written already: to write it each time is half of a run."""
    names = (chance.choice(NAMES_WRITTEN) for _ in range(size))
    return f"{{{', '.join([f'{name}: {value_written(chance, depth)}' for name in names])}}}"


def value_written(chance: random.Random, depth: int) -> str:
    if depth < 2 and chance.random() < 0.15:
        return written(chance, 3, depth + 1)
    if depth < 2 and chance.random() < 0.1:
        items = [value_written(chance, depth + 1) for _ in range(chance.randrange(4))]
        return f"[{', '.join(items)}]"
    return chance.choice(VALUES_WRITTEN)


def hostile(chance: random.Random) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    names = [chance.choice(NAMES) for _ in range(chance.randrange(1, 5))]
    if chance.random() < 0.8:
        names.append(chance.choice(("inputs", "text_input", "request", "input_ids")))
    rows = [
        {name: tensor(chance, name) for name in names}
        for _ in range(2 if chance.random() < 0.1 else 1)
    ]
    parameters = {chance.choice(NAMES): value(chance) for _ in range(chance.randrange(4))}
    return rows, parameters


def http_body(chance: random.Random) -> bytes:
    """A body for Triton's `/generate`; short answers, so that the test ends."""
    rows, parameters = hostile(chance)
    body: dict[str, Any] = {"parameters": {"max_new_tokens": 2}}
    body |= rows[0] | parameters
    return json.dumps(body, default=str).encode()
