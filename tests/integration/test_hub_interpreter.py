"""config.json from the Hub, fetched by the engine's own interpreter."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import hub_file
from tests.support.hub_server import hub_server
from tests.support.places import ENGINE_PYTHON

NO_PYTHON = "/no/such/python"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    with hub_server({"config.json": b"{}", "index.json": b"[]"}) as url:
        yield {
            "PATH": os.environ["PATH"],
            "HF_HOME": str(tmp_path),
            "HF_ENDPOINT": url,
            "HF_TOKEN": "hf_very_secret",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "no_proxy": "127.0.0.1",
        }


def test_a_file_is_fetched_by_the_workers_interpreter(environment: dict[str, str]) -> None:
    said: list[str] = []
    names = ["config.json", "not-there.json", "index.json"]
    found = hub_file(str(ENGINE_PYTHON), "org/m", "", names, environment, said.append)
    assert found.read_bytes() == b"{}"
    assert found.with_name("index.json").read_bytes() == b"[]"
    assert said == ["asking the Hub for config.json of org/m, 30 s at most"]
    environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    assert hub_file(NO_PYTHON, "org/m", "", names, environment, said.append) == found
    assert len(said) == 1


@pytest.mark.parametrize(
    ("model", "revision", "words"),
    [
        ("org/none", "", "is not on the Hub, or is private"),
        ("org/gated", "", "is gated"),
        ("org/m", "v9", "has no such revision"),
    ],
)
def test_each_refusal_has_its_sentence(
    model: str, revision: str, words: str, environment: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError) as error:
        hub_file(str(ENGINE_PYTHON), model, revision, ["config.json"], environment)
    said = str(error.value)
    assert words in said
    assert "hf_very_secret" not in said
    assert "\n" not in said
