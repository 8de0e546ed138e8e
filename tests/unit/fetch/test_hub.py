import os
import sys
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch import hub_file
from tests.support.doubles.hub_server import COMMIT

NO_PYTHON = "/no/such/python"


def refusal(python: str | Path, model: str, revision: str, environment: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as error:
        hub_file(str(python), model, revision, ["config.json"], environment)
    assert "hf_very_secret" not in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("revision", "reference"), [("", "main"), ("v1", "v1"), (COMMIT, "")])
def test_the_local_cache_is_enough(revision: str, reference: str, tmp_path: Path) -> None:
    model = tmp_path / "hub" / "models--org--m"
    (model / "refs").mkdir(parents=True)
    if reference:
        (model / "refs" / reference).write_text(COMMIT)
    file = model / "snapshots" / COMMIT / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert hub_file(NO_PYTHON, "org/m", revision, ["config.json"], environment) == file


@pytest.mark.parametrize(
    ("variables", "cache"),
    [
        ({"HF_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/a", "HF_HOME": "{}/b"}, "a"),
        ({"HF_HUB_CACHE": "{}/a", "HUGGINGFACE_HUB_CACHE": "{}/b"}, "a"),
        ({"HF_HOME": "{}/b", "XDG_CACHE_HOME": "{}/c"}, "b/hub"),
        ({"XDG_CACHE_HOME": "{}/c"}, "c/huggingface/hub"),
    ],
)
def test_the_cache_is_where_the_library_has_it(
    variables: dict[str, str], cache: str, tmp_path: Path
) -> None:
    file = tmp_path / cache / "models--org--m" / "snapshots" / COMMIT / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    environment = {name: value.format(tmp_path) for name, value in variables.items()}
    assert hub_file(NO_PYTHON, "org/m", COMMIT, ["config.json"], environment) == file


def test_offline_means_offline(tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    message = refusal(NO_PYTHON, "org/m", "", environment)
    assert message == "org/m: config.json is not in the local cache, and HF_HUB_OFFLINE is set"


@pytest.mark.parametrize("model", ["a/b/c", "/x", "org/é", "-x", "", "a b"])
def test_what_is_no_id_is_refused(model: str) -> None:
    assert "is neither a folder nor a hub id" in refusal(NO_PYTHON, model, "", {})


@pytest.mark.parametrize("revision", ["../../x", "/etc", "a/../b"])
def test_a_revision_cannot_lead_out_of_the_cache(revision: str) -> None:
    assert "is not a revision of the model" in refusal(NO_PYTHON, "org/m", revision, {})


def test_a_refusal_of_the_library_becomes_one_sentence(tmp_path: Path) -> None:
    """As an unreachable Hub does, for which the library itself tries for 20 seconds."""
    python = tmp_path / "python"
    environment = {"HF_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for text, words in (
        ("LocalEntryNotFoundError: An error happened", "the Hub cannot be reached"),
        ("OSError: odd", "cannot be fetched from the Hub: OSError: odd"),
    ):
        python.write_text(f"#!/bin/sh\necho '{text}' >&2; exit 1\n")
        python.chmod(0o755)
        assert words in refusal(python, "org/m", "", environment)


def test_an_interpreter_that_cannot_ask_is_said(tmp_path: Path) -> None:
    environment = {"HF_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = f"`{sys.executable} -m pip install huggingface_hub`"
    message = refusal(sys.executable, "org/m", "", environment)
    assert message.endswith(f"{sys.executable} has no huggingface_hub; run {command}")
    assert "the Hub did not answer" in refusal(NO_PYTHON, "org/m", "", environment)
