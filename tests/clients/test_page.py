"""Run the examples of docs/clients.md for the libraries of others, but for host and key."""

import json
import subprocess

import pytest

from tests.clients.conftest import KEY
from tests.support.pages import examples, section
from tests.support.places import CLIENTS_PYTHON, ROOT
from tests.support.serving import Served

EXAMPLES = examples(section(ROOT / "docs" / "clients.md", "One port for all"), "###")


def test_each_library_has_an_example() -> None:
    titles = {title for title, *_ in EXAMPLES}
    assert titles == {
        "openai", "anthropic", "boto3", "LiteLLM", "LangChain", "huggingface_hub", "curl"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("language", "text", "answer"),
    [example[1:] for example in EXAMPLES],
    ids=[title for title, *_ in EXAMPLES],
)
def test_an_example_says_rome(served: Served, language: str, text: str, answer: str) -> None:
    text = text.replace("localhost:8080", served.front_end).replace("your-key", KEY)
    python = [str(CLIENTS_PYTHON), "-c", text]
    command = ["bash", "-ec", text] if language == "sh" else python
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert "Rome" in done.stdout
    if answer:
        assert json.loads(done.stdout) == json.loads(answer)
