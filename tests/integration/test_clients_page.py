"""Run docs/clients.md, docs/lora.md and the curl of README: every example as it stands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import examples
from tests.support.serving import Served

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "clients.md"
LORA = ROOT / "docs" / "lora.md"
README = "Send a request"
ONE_PORT = "One port for all"
"""Its examples, and the Python of README, are run by tests/clients, where their libraries are."""
EXPECTED = {
    "LMI": "Rome",
    "Triton's vLLM backend": "Rome.",
    "Triton's TensorRT-LLM backend": "(1, 1, 6)",
    "OpenAI": "[DONE]",
    "One response: `/infer`, `ModelInfer`, SageMaker": "[' Rome.', ' Tokyo.']",
    "While the model serves": "Adapter third unregistered",
}
"""A part of what the Python example of each section prints."""


EXAMPLES = [
    *(each for each in examples(PAGE.read_text("utf-8")) if each[0] != ONE_PORT),
    *examples(LORA.read_text("utf-8")),
    *(
        each
        for each in examples((ROOT / "README.md").read_text("utf-8"))
        if each[:2] == (README, "sh")
    ),
]


def test_each_client_has_a_curl_and_a_python_example() -> None:
    for title in EXPECTED:
        languages = {language for section, language, _, _ in EXAMPLES if section == title}
        assert languages == {"sh", "python"}, title


@pytest.mark.parametrize(
    ("title", "language", "text", "answer"),
    EXAMPLES,
    ids=[f"{title.split()[0]} {language}" for title, language, _, _ in EXAMPLES],
)
def test_an_example_does_what_the_page_says(
    served: Served, title: str, language: str, text: str, answer: str
) -> None:
    text = text.replace("localhost:8000", served.http).replace("localhost:8001", served.grpc)
    text = text.replace("localhost:8080", served.front_end)
    # Several models are served here, and which one is asked must be said.
    text = text.replace("/invocations ", "/invocations -H 'X-Amzn-SageMaker-Target-Model: tiny' ")
    text = text.replace("lmi-backend generate", f"lmi-backend generate --url http://{served.http}")
    command = ["bash", "-ec", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False, cwd=ROOT)
    output = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, done.stderr.decode()
    assert '"error"' not in output
    if answer:
        assert json.loads(output) == json.loads(answer)
    if language == "python":
        assert EXPECTED[title] in output
    if title == README:
        assert "Rome" in output
