"""What all tests share: where things are, and what the tiny model knows."""

import json
from typing import Any

import pytest

from tests.support.places import ENGINE_PYTHON, TESTS, TINY

# From what is known in seconds to what takes minutes.
ORDER = ("unit", "contract", "integration", "clients", "security", "chaos", "soak", "gpu")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders in this order; within one, as they stand."""
    items.sort(key=lambda item: ORDER.index(item.path.relative_to(TESTS).parts[0]))


def _known(name: str) -> list[dict[str, str]]:
    path = TINY / name
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make model`, or all tests with `make test`")
    known: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return known


@pytest.fixture(scope="session")
def questions() -> dict[str, str]:
    """Prompt to greedy answer, as verified when the tiny model was trained."""
    return {item["prompt"]: item["answer"] for item in _known("questions.json")}


@pytest.fixture(scope="session")
def long_questions() -> dict[str, str]:
    """The same, for answers of 33 to 218 tokens."""
    return {item["prompt"]: item["answer"] for item in _known("long_questions.json")}


@pytest.fixture(scope="session")
def tiny_properties() -> dict[str, Any]:
    """Options that serve the tiny model quickly on a CPU."""
    return {
        "option.rolling_batch": "vllm",
        "option.model_id": TINY / "llama",
        "option.pythonExecutable": ENGINE_PYTHON,
        "option.dtype": "fp32",
        "option.max_model_len": 1024,
        "option.max_rolling_batch_size": 64,
        "option.enforce_eager": "true",
        "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
        "option.enable_lora": "true",
        "option.max_lora_rank": 8,
    }
