"""Run pages from top to bottom against what they start: `make serve`, with nothing added."""

import json
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.doubles.cutting_proxy import CuttingProxy
from tests.support.records.pages import Block, blocks
from tests.support.run.places import CLIENTS_NODE, CLIENTS_PYTHON, ENGINE_PYTHON, ROOT
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve

PAGES = (
    "README.md",
    "docs/quickstart-cpu.md",
    "docs/clients.md",
    "docs/triton-clients.md",
    "docs/scheduling.md",
    "docs/tools.md",
    "docs/lora.md",
)
LANGUAGES = ("sh", "python", "js")
BLOCKS = [block for page in PAGES for block in blocks(page) if block.language in LANGUAGES]
RESUMED = "Streams that resume"
EXPECTED = {
    "Your own model sh": "engine      vllm",
    "OpenAI python": "[DONE]",
    "A tool that must be called sh": '"name":"travel"',
    "Choose an adapter sh": "Lyon",
    "While the model serves sh": "second",
    "While the model serves python": "Adapter third unregistered",
}
"""A part of what each example under a heading prints, if it is not Rome."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """What `make serve CLIENTS=trtllm,infer,raw` starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHON_EXECUTABLE", str(ENGINE_PYTHON))
        folder = tmp_path_factory.mktemp("pages")
        with serve([ROOT / "examples" / "tiny"], folder, "--clients", "trtllm,infer,raw") as server:
            wait_for(lambda: server.ask("/ping")[0] == 200)
            yield server


def test_the_makefile_starts_that_server() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\nserve: ")[2].partition("\n\n")[0]
    assert "lmi-backend serve examples/tiny " in recipe
    addresses = {"--host", "--port", "--http-port", "--grpc-port", "--metrics-port"}
    assert set(re.findall(r"(?<![\w-])--[\w-]+", recipe)) == addresses | {"--clients"}


def test_each_page_has_examples() -> None:
    assert {block.page for block in BLOCKS} == set(PAGES)
    names = {f"{block.title} {block.language}" for block in BLOCKS}
    libraries = ("openai", "anthropic", "boto3", "LiteLLM", "LangChain", "huggingface_hub", RESUMED)
    assert names >= EXPECTED.keys() | {f"{each} python" for each in libraries}


@pytest.mark.parametrize(
    "block", BLOCKS, ids=[f"{b.page.removeprefix('docs/')} {b.title} {b.language}" for b in BLOCKS]
)
def test_an_example_does_what_its_page_says(tiny: Served, block: Block) -> None:
    with CuttingProxy(tiny.port).run() as proxy:
        # Requests that have these bytes: the first connection, and two on which it reconnects.
        cuts = {b"POST ": 700, b"POST /": 1100, b"POST /v": 800} if block.title == RESUMED else {}
        proxy.cuts |= cuts
        front_end = f"127.0.0.1:{proxy.port}" if cuts else tiny.front_end
        printed = run(block, tiny, front_end)
        assert not proxy.cuts
    assert '"error"' not in printed
    if block.answer:
        assert json.loads(printed) == json.loads(block.answer)
    else:
        assert EXPECTED.get(f"{block.title} {block.language}", "Rome") in printed


def run(block: Block, tiny: Served, front_end: str) -> str:
    """Run an example with the ports of this server; return what it prints."""
    text = block.text.replace("localhost:8080", front_end)
    text = text.replace("localhost:8000", tiny.http).replace("localhost:8001", tiny.grpc)
    node = next(CLIENTS_PYTHON.parents[1].glob(CLIENTS_NODE), CLIENTS_PYTHON)
    programs = {
        "sh": ["bash", "-ec"],
        "python": [str(CLIENTS_PYTHON), "-c"],
        "js": [str(node), "--input-type=module", "-e"],
    }
    command = [*programs[block.language], text]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "replace")
