"""`replay --against` vLLM's own servers of models that pool: each difference has a kind."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.main import main
from tests.support.explained import OF_POOLING, read_kinds, unexplained
from tests.support.places import TINY
from tests.support.pooling_corpus import OF_CLASSES, OF_VECTORS, requests
from tests.support.ranking_model import write_ranking_model
from tests.support.serving import serve, write_properties
from tests.support.vllm_server import vllm_server, wait_until_ready
from tests.support.waiting import wait_for

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
        servers: tuple[str, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        url, theirs = servers
        kinds = read_kinds(OF_POOLING)
        unknown, seen, same, asked = [], set[str](), 0, 0
        for name, against in theirs.items():
            wait_until_ready(against)
            records = list(requests(BODIES[name], name))
            corpus, state = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.state"
            corpus.write_text(
                "".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8"
            )
            words = ["--state", str(state), "--concurrency", "1", "--no-shrink", "--json"]
            main(["replay", str(corpus), "--url", url, "--against", against, *words])
            report = json.loads(capsys.readouterr().out)
            assert (report["judged"], report["problems"]) == (len(records), [])
            found = unexplained(state, records, kinds)
            unknown += found[0]
            seen |= found[1]
            same += found[2]
            asked += len(records)
        assert unknown == []
        # Each kind is true of these servers.
        assert {kind["kind"] for kind in kinds} == seen
        assert same > asked / 2
