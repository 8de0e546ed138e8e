"""Run the examples of clients.md, tools.md and README as they stand, but for host and key."""

import json
import subprocess

import pytest

from tests.clients.conftest import KEY
from tests.support.cutting_proxy import CuttingProxy
from tests.support.pages import examples, section
from tests.support.places import CLIENTS_NODE, CLIENTS_PYTHON, ROOT
from tests.support.serving import Served

EXAMPLES = examples(section(ROOT / "docs" / "clients.md", "One port for all"), "###")

README = [
    ("README", *each[1:])
    for each in examples((ROOT / "README.md").read_text("utf-8"))
    if each[1] == "python"
]
TOOLS = examples((ROOT / "docs" / "tools.md").read_text("utf-8"))
RESUMED = "Streams that resume"
CALL = "A tool that must be called"


def test_each_library_has_an_example() -> None:
    titles = {title for title, *_ in EXAMPLES}
    assert titles == {
        "openai", "anthropic", "boto3", "LiteLLM", "LangChain", "huggingface_hub", "curl", RESUMED,
    }  # fmt: skip
    assert (len(README), len(TOOLS)) == (1, 2)


def test_an_example_is_greedy() -> None:
    """A sampled answer of the tiny model is another one in forty."""
    for title, _, text, _ in EXAMPLES + README + TOOLS:
        assert "temperature" in text or "do_sample" in text, title


def program(language: str) -> list[str]:
    """Return what runs an example of a language."""
    if language == "sh":
        return ["bash", "-ec"]
    if language == "js":
        return [
            str(next(CLIENTS_PYTHON.parents[1].glob(CLIENTS_NODE))),
            "--input-type=module",
            "-e",
        ]
    return [str(CLIENTS_PYTHON), "-c"]


@pytest.mark.parametrize(
    ("title", "language", "text", "answer"),
    EXAMPLES + README + TOOLS,
    ids=[title for title, *_ in EXAMPLES + README + TOOLS],
)
def test_an_example_does_what_its_page_says(
    served: Served, title: str, language: str, text: str, answer: str
) -> None:
    with CuttingProxy(served.port).run() as proxy:
        # Requests that have these bytes: the first connection, and two on which it reconnects.
        cuts = {b"POST ": 700, b"POST /": 1100, b"POST /v": 800} if title == RESUMED else {}
        proxy.cuts |= cuts
        host = f"127.0.0.1:{proxy.port}" if cuts else served.front_end
        text = text.replace("localhost:8080", host).replace("your-key", KEY)
        command = [*program(language), text]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert not proxy.cuts
    assert done.returncode == 0, done.stderr
    if title == CALL:
        (choice,) = json.loads(done.stdout)["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "travel"
    else:
        assert "Rome" in done.stdout
    if answer:
        assert json.loads(done.stdout) == json.loads(answer)
