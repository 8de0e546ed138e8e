"""`replay --against` vLLM's own servers of models that pool: each difference has a kind."""

import json
import os
import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers.explained import OF_POOLING, read_kinds, replayed, unexplained
from tests.support.run.places import TINY
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import serve, write_properties
from tests.support.servers.vllm_server import vllm_server, wait_until_ready

_HEAD = "score.weight"


def write_ranking_model(folder: Path) -> Path:
    """Write it into a new folder, with a head by seed; return the folder."""
    shutil.copytree(TINY / "llama", folder)
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config |= {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}
    config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    path.write_text(json.dumps(config), encoding="utf-8")
    _add_head(folder / "model.safetensors", config["hidden_size"])
    return folder


def _add_head(path: Path, size: int) -> None:
    """Add the weights of one class to a file of safetensors."""
    dice = random.Random(1)
    weights = struct.pack(f"<{size}f", *(dice.uniform(-1, 1) for _ in range(size)))
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    head, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    place = [len(rest), len(rest) + len(weights)]
    head[_HEAD] = {"dtype": "F32", "shape": [1, size], "data_offsets": place}
    written = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + rest + weights)


QUERY, OTHER = "The capital of France is", "Two plus three is"
TEXTS = (QUERY, "née à Zürich — 東京 🗼", "a" * 50, OTHER)
MESSAGES = [{"role": "user", "content": "Hi"}]
TOO_LONG = "a " * 3000
VECTORS: tuple[dict[str, Any], ...] = (
    *({"input": text} for text in TEXTS), {"input": TEXTS[:2]}, {"input": [1, 2, 3]},
    {"input": [[1, 2, 3], [4, 5]]}, {"input": QUERY, "encoding_format": "base64"},
    {"input": TEXTS[:2], "encoding_format": "float"}, {"input": QUERY, "encoding_format": None},
    {"input": QUERY, "encoding_format": "base64", "embed_dtype": "float16"},
    {"input": QUERY, "encoding_format": "base64", "endianness": "big"},
    {"input": QUERY, "encoding_format": "bytes"}, {"input": QUERY, "encoding_format": "bytes_only"},
    {"input": QUERY, "dimensions": 16}, {"input": QUERY, "user": "u"},
    {"input": QUERY, "priority": 0},
    {"input": QUERY, "truncate_prompt_tokens": 3}, {"input": QUERY, "add_special_tokens": False},
    {"input": QUERY, "use_activation": False}, {"input": QUERY, "normalize": False},
    {"input": QUERY, "request_id": "own"}, {"messages": MESSAGES},
    {"messages": MESSAGES, "add_generation_prompt": True},
    # Wrong ones.
    {}, {"input": None}, {"input": ""}, {"input": []}, {"input": [""]}, {"input": 5},
    {"input": {"a": 1}}, {"input": [1, "a"]}, {"input": [[]]}, {"input": [99999]}, {"input": [-1]},
    {"input": QUERY, "encoding_format": "x"}, {"input": QUERY, "dimensions": 0},
    {"input": QUERY, "dimensions": "x"}, {"input": TOO_LONG}, {"input": QUERY, "model": "nobody"},
    {"input": QUERY, "unknown": 1}, {"input": QUERY, "stream": True}, {"messages": []},
    {"input": QUERY, "truncate_prompt_tokens": -5},
)  # fmt: skip
POOLS: tuple[dict[str, Any], ...] = (
    {"input": QUERY}, {"input": TEXTS[:2]}, {"input": QUERY, "task": "embed"},
    {"input": QUERY, "task": "classify"}, {"input": QUERY, "task": "token_embed"},
    {"input": QUERY, "task": "token_classify"}, {"input": QUERY, "task": "none"},
    {"input": QUERY, "encoding_format": "base64"}, {"messages": MESSAGES}, {}, {"input": []},
    {"data": {"a": 1}},
)  # fmt: skip
SCORES: tuple[dict[str, Any], ...] = (
    {"text_1": QUERY, "text_2": OTHER}, {"text_1": QUERY, "text_2": TEXTS[1:]},
    {"text_1": TEXTS[:2], "text_2": TEXTS[2:]}, {"queries": QUERY, "documents": [OTHER]},
    {"text_1": TEXTS[:2], "text_2": TEXTS[:1]}, {}, {"text_1": QUERY},
    {"text_1": 5, "text_2": QUERY}, {"text_1": QUERY, "text_2": OTHER, "use_activation": False},
)  # fmt: skip
RANKS: tuple[dict[str, Any], ...] = (
    {"query": QUERY, "documents": TEXTS[1:]}, {"query": QUERY, "documents": TEXTS[1:], "top_n": 1},
    {"query": QUERY, "documents": OTHER}, {"query": QUERY, "documents": [OTHER], "top_n": 9},
    {"query": QUERY, "documents": [OTHER], "return_documents": False},
    {"query": QUERY, "documents": [OTHER], "truncate_prompt_tokens": 4},
    {"query": QUERY, "documents": [OTHER], "use_activation": False},
    # Wrong ones.
    {}, {"query": QUERY}, {"query": QUERY, "documents": []}, {"query": 5, "documents": [OTHER]},
    {"query": QUERY, "documents": [{"text": "a"}]}, {"query": TOO_LONG, "documents": [OTHER]},
    {"query": QUERY, "documents": [OTHER], "top_n": 0}, {"query": "", "documents": [""]},
    {"query": QUERY, "documents": [OTHER], "top_n": "x"},
    {"query": QUERY, "documents": [OTHER], "unknown": 1},
    {"query": QUERY, "documents": [OTHER], "model": "nobody"},
)  # fmt: skip
CLASSES: tuple[dict[str, Any], ...] = (
    {"input": QUERY}, {"input": TEXTS[:2]}, {"input": [1, 2, 3]}, {"messages": MESSAGES},
    {"input": QUERY, "use_activation": False}, {"input": QUERY, "add_special_tokens": False},
    {}, {"input": []}, {"input": None}, {"input": TOO_LONG}, {"input": QUERY, "unknown": 1},
)  # fmt: skip
_RANKING = dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), RANKS)
_SCORING = dict.fromkeys(("/score", "/v1/score"), SCORES)
OF_VECTORS = {
    "/v1/embeddings": VECTORS,
    "/pooling": POOLS,
    **_SCORING,
    "/rerank": RANKS[:1],
    "/classify": CLASSES[:1],
    "/v1/completions": ({"prompt": "a"},),
    "/tokenize": ({"prompt": QUERY}, {"messages": MESSAGES}),
    "/detokenize": ({"tokens": [1, 70, 71]},),
}
"""Of a model that makes vectors: each path, and its bodies."""
OF_CLASSES = {
    **_RANKING,
    **_SCORING,
    "/classify": CLASSES,
    "/pooling": POOLS,
    "/v1/embeddings": VECTORS[:1],
}
"""The same of a model with one class, which ranks."""


def requests(of: dict[str, tuple[dict[str, Any], ...]], model: str) -> Iterator[dict[str, Any]]:
    """Yield records of requests to a model, as `replay` reads them."""
    headers = {"content-type": "application/json"}
    for path, bodies in of.items():
        for body in bodies:
            yield {"path": path, "headers": headers, "body": json.dumps({"model": model, **body})}


CHOSEN = "LMI_BACKEND_TEST_POOLING"
BODIES = {"vectors": OF_VECTORS, "classes": OF_CLASSES}
CONVERT = {"vectors": "embed", "classes": "classify"}


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of this server with both models, and that of vLLM's own server of each."""
    folder = tmp_path_factory.mktemp("pooling")
    weights = {"vectors": TINY / "llama", "classes": write_ranking_model(folder / "weights")}
    theirs: dict[str, str] = {}
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        for name, path in weights.items():
            flags = ["--model", str(path), "--served-model-name", name, "--runner", "pooling"]
            server = vllm_server(folder / f"{name}.log", *flags, "--convert", CONVERT[name])
            theirs[name] = stack.enter_context(server)
        own = {n: value for n, value in tiny_properties.items() if "lora" not in n}
        own["option.parallel_loading"] = "true"
        models = [
            write_properties(
                folder / name, own | {"option.model_id": path, "option.task": CONVERT[name]}
            )
            for name, path in weights.items()
        ]
        ours = stack.enter_context(serve(models, folder))
        wait_for(lambda: ours.ask("/ping")[0] == 200)
        yield f"http://{ours.front_end}", theirs


if os.environ.get(CHOSEN):  # starts four more engines

    def test_each_difference_from_vllms_own_server_is_a_known_one(
        servers: tuple[str, dict[str, str]], tmp_path: Path
    ) -> None:
        url, theirs = servers
        kinds = read_kinds(OF_POOLING)
        unknown, seen, same, asked = [], set[str](), 0, 0
        for name, against in theirs.items():
            wait_until_ready(against)
            records = list(requests(BODIES[name], name))
            corpus = tmp_path / f"{name}.jsonl"
            corpus.write_text(
                "".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8"
            )
            found = unexplained(replayed(corpus, url, against), records, kinds)
            unknown += found[0]
            seen |= found[1]
            same += found[2]
            asked += len(records)
        assert unknown == []
        # Each kind is true of these servers.
        assert {kind["kind"] for kind in kinds} == seen
        assert same > asked / 2
