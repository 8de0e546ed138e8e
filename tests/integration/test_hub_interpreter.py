"""config.json from the Hub, fetched by the engine's own interpreter."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import download, hub_file
from lmi_backend.fetch.hub import snapshot
from lmi_backend.fetch.weights import Download, fetch_weights
from tests.support.doubles.hub_server import hub_server
from tests.support.run.places import ENGINE_PYTHON

SHARDS = {f"model-0000{number}-of-00002.safetensors": bytes(number * 100_000) for number in (1, 2)}
INDEX = json.dumps({"weight_map": {name: name for name in SHARDS}}).encode()
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
    lines: list[str] = []
    names = ["config.json", "not-there.json", "index.json"]
    found = hub_file(str(ENGINE_PYTHON), "org/m", "", names, environment, lines.append)
    assert found.read_bytes() == b"{}"
    assert found.with_name("index.json").read_bytes() == b"[]"
    assert lines == ["requesting from the Hub: config.json of org/m, 30 s at most"]
    environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    assert hub_file(NO_PYTHON, "org/m", "", names, environment, lines.append) == found
    assert len(lines) == 1


@pytest.mark.parametrize("half", [b"", bytes(50_000)])
def test_weights_are_fetched_once(environment: dict[str, str], tmp_path: Path, half: bytes) -> None:
    blobs = tmp_path / "hub" / "models--org--m" / "blobs"
    blobs.mkdir(parents=True)
    # What an attempt left that was cut.
    digest = hashlib.sha256(next(iter(SHARDS.values()))).hexdigest()
    (blobs / f"{digest}.incomplete").write_bytes(half)
    downloads: list[Download] = []
    with hub_server({"model.safetensors.index.json": INDEX, **SHARDS}) as url:
        environment["HF_ENDPOINT"] = url
        assert not fetch_weights(str(ENGINE_PYTHON), "org/m", "", environment, downloads.append)
    folder = snapshot("org/m", "", environment)
    assert {name: (folder / name).read_bytes() for name in SHARDS} == SHARDS
    assert {each.total for each in downloads} == {300_000}
    # All is there: nobody is asked.
    assert not fetch_weights(NO_PYTHON, "org/m", "", environment, downloads.append)


def test_the_job_of_a_deployment_fetches_a_whole_model(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    files = {"config.json": b"{}", "model.safetensors.index.json": INDEX, **SHARDS}
    with hub_server(files) as url:
        for variable, value in (environment | {"HF_ENDPOINT": url}).items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("PYTHON_EXECUTABLE", str(ENGINE_PYTHON))
        assert download.main(["org/m"]) == 0
        assert download.main(["org/gated"]) != 0
        assert download.main(["a/b/c"]) != 0
    folder = snapshot("org/m", "", environment)
    assert {each: (folder / each).read_bytes() for each in files} == files
    errors = capfd.readouterr().err
    assert "org/m: downloading: " in errors
    assert "org/gated: is gated" in errors


def test_weights_that_cannot_be_fetched_are_left_to_the_engine(environment: dict[str, str]) -> None:
    for model, words in (("org/gated", "is gated"), ("org/m", "has no such file")):
        why = fetch_weights(str(ENGINE_PYTHON), model, "", environment, print)
        assert words in why
    assert not fetch_weights(NO_PYTHON, "/a/folder", "", environment, print)


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
    message = str(error.value)
    assert words in message
    assert "hf_very_secret" not in message
    assert "\n" not in message
