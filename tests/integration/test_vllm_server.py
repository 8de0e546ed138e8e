"""`replay --against` vLLM's own server: each difference has a kind, and each kind is true."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.answers.explained import OF_VLLM, read_kinds, replayed, unexplained
from tests.support.answers.openai_corpus import requests
from tests.support.servers.serving import Served
from tests.support.servers.vllm_server import vllm_server, wait_until_ready

SEED, MADE = 1, int(os.environ.get("LMI_BACKEND_TEST_REQUESTS", "400"))
AT_ONCE = 8
TOOLS = (
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--structured-outputs-config"),
    json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}),
)
CHANCE = {"two tokens that are as likely"}
"""Kinds that need not be seen."""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own server; with LoRA its core dies of a prompt's log probabilities on a CPU."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        with vllm_server(log, *TOOLS) as url:
            yield url


def test_each_difference_from_vllms_own_server_is_a_known_one(
    served: Served, theirs: str, tmp_path: Path
) -> None:
    wait_until_ready(theirs)
    records = list(requests(SEED, MADE))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    outcomes = replayed(corpus, f"http://{served.front_end}", theirs, at_once=AT_ONCE)
    kinds = read_kinds(OF_VLLM)
    unknown, seen, same = unexplained(outcomes, records, kinds)
    assert unknown == []
    # Each kind is true of these two servers.
    assert {kind["kind"] for kind in kinds} - CHANCE - seen == set()
    assert same > len(records) / 2
