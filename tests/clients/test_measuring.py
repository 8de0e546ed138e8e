"""NVIDIA's programs that measure Triton: perf_analyzer, and GenAI-Perf, which runs it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmark.perf_analyzer import Analyzer, find_perf_analyzer

from tests.support.run.places import CLIENTS_PYTHON, ROOT, TINY
from tests.support.servers.serving import Served

REQUESTS, TOKENS = 6, 8
_TRIES = 3


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return find_perf_analyzer(ROOT / ".cache" / "perf_analyzer")


def run(analyzer: Analyzer, command: list[str], folder: Path) -> None:
    """Run a program that writes its profile into a folder.

    perf_analyzer 2.50 measures all and then writes an empty one in two of a hundred runs: it is run
    again.
    """
    path = f"{analyzer.path.parent}{os.pathsep}{os.environ['PATH']}"
    libraries = {"PATH": path, "LD_LIBRARY_PATH": analyzer.libraries, "HF_HUB_OFFLINE": "1"}
    environment = os.environ | libraries
    for _ in range(_TRIES):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        empty = [each for each in folder.rglob("profile*.json") if not each.stat().st_size]
        if not empty:
            break
        for each in empty:
            each.unlink()
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def read(folder: Path, name: str) -> Any:
    (file,) = folder.rglob(name)
    return json.loads(file.read_text(encoding="utf-8"))


def answers(profile: Any) -> list[list[dict[str, Any]]]:
    return [
        request["response_outputs"]
        for experiment in profile["experiments"]
        for request in experiment["requests"]
    ]


@pytest.mark.parametrize(
    ("model", "request_body"),
    [
        (
            "echo",
            {
                "text_input": ["a b"],
                "stream": [True],
                "sampling_parameters": [json.dumps({"max_tokens": str(TOKENS)})],
            },
        ),
        ("ensemble", {"text_input": ["a b"], "stream": [True], "max_tokens": [TOKENS]}),
        (
            "tensorrt_llm",
            {"input_ids": [5, 6], "request_output_len": [TOKENS], "streaming": [True]},
        ),
    ],
)
def test_perf_analyzer(
    analyzer: Analyzer,
    ensemble_server: Served,
    tmp_path: Path,
    model: str,
    request_body: dict[str, Any],
) -> None:
    """With the tensors of the vLLM backend, of an ensemble, and of the core model."""
    data = tmp_path / "data.json"
    # One value needs no shape, as docs/triton-clients.md shows.
    body = {
        name: v if len(v) == 1 else {"content": v, "shape": [len(v)]}
        for name, v in request_body.items()
    }
    data.write_text(json.dumps({"data": [body]}), encoding="utf-8")
    command = [str(analyzer.path), "-m", model, "-u", ensemble_server.grpc, "-i", "grpc"]
    command += ["--streaming", "--async", "--input-data", str(data), "--concurrency-range", "2"]
    command += ["--request-count", str(REQUESTS), "--stability-percentage", "999"]
    run(analyzer, [*command, "--profile-export-file", str(tmp_path / "profile.json")], tmp_path)
    requests = answers(read(tmp_path, "profile.json"))
    if model == "tensorrt_llm":
        counts = [sum(each["sequence_length"] for each in responses) for responses in requests]
        assert counts == [TOKENS] * REQUESTS
    else:
        texts = ["".join(each["text_output"] for each in responses) for responses in requests]
        assert texts == ["a b" * (TOKENS // 2)] * REQUESTS
    # On a busy machine tokens share a response.
    assert all(1 < len(responses) <= TOKENS for responses in requests)


def test_genai_perf(analyzer: Analyzer, ensemble_server: Served, tmp_path: Path) -> None:
    """It makes perf_analyzer's command; the tensors of other models are tried with that above."""
    command = [str(CLIENTS_PYTHON.parent / "genai-perf"), "profile", "-m", "echo"]
    command += ["--endpoint-type", "kserve", "--backend", "vllm", "--streaming"]
    command += ["-u", ensemble_server.grpc, "--tokenizer", str(TINY / "llama")]
    command += ["--concurrency", "2", "--request-count", str(REQUESTS)]
    command += ["--num-dataset-entries", "2", "--synthetic-input-tokens-mean", "12"]
    command += ["--output-tokens-mean", str(TOKENS), "--output-tokens-mean-deterministic"]
    run(analyzer, [*command, "--artifact-dir", str(tmp_path)], tmp_path)
    profile = read(tmp_path, "profile_export_genai_perf.json")
    assert profile["request_count"]["avg"] == REQUESTS
    assert "time_to_second_token" in profile
    responses = answers(read(tmp_path, "profile_export.json"))
    assert len(responses) == REQUESTS
    # On a busy machine tokens share a response.
    assert all(1 < len(each) <= TOKENS for each in responses)
