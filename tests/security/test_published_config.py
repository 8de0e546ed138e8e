"""Read options, paths and secrets in the configuration that Triton gives to any client."""

import json
from pathlib import Path

import pytest
import tritonclient.grpc

from lmi_backend.options import load_options
from lmi_backend.repository.variants import VARIANTS, Alias
from lmi_backend.repository.writer import write_alias_model, write_model
from tests.support.harm.attackers import SECRET, UNSEEN
from tests.support.servers.serving import Served, answer_of

LINES = UNSEEN.format(secret=SECRET)
MODEL = "unseen"
FORMS = [MODEL, f"{MODEL}_infer"]


@pytest.fixture
def served(crowded: Served) -> Served:
    return crowded


@pytest.fixture
def folder(secret_folder: Path) -> Path:
    return secret_folder


def assert_tells_nothing(text: str, folder: Path) -> None:
    assert MODEL in text
    assert SECRET not in text
    assert "0.0123" not in text
    assert "option." not in text
    assert "hub/model" not in text
    assert "secret-place" not in text
    assert str(folder.parent) not in text
    assert "/tmp" not in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["/config", "", "/stats"])
def test_http_tells_no_option_no_path_no_secret(
    what: str, form: str, served: Served, folder: Path
) -> None:
    text = answer_of(served.http, f"/v2/models/{form}{what}")[2].decode()
    assert_tells_nothing(text, folder)
    if what == "/config":
        names = set[str]() if form == MODEL else {"shares", "clients"}
        assert set(json.loads(text)["parameters"]) == names


@pytest.mark.parametrize("form", FORMS)
def test_grpc_tells_none_either(form: str, served: Served, folder: Path) -> None:
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        for answer in (client.get_model_config(form), client.get_model_metadata(form)):
            assert_tells_nothing(str(answer), folder)


@pytest.mark.parametrize("clients", sorted(VARIANTS.keys() - {"vllm"}))
def test_no_alias_model_is_written_with_any(clients: str, folder: Path, tmp_path: Path) -> None:
    write_alias_model(tmp_path, MODEL, Alias(VARIANTS[clients]), load_options(folder, {}))
    (config,) = tmp_path.glob("*/config.pbtxt")
    assert_tells_nothing(config.read_text(encoding="utf-8"), folder)


def test_the_metrics_tell_none_either(served: Served, folder: Path) -> None:
    assert_tells_nothing(served.metrics(), folder)


def test_no_option_changes_what_is_published(tmp_path: Path) -> None:
    source, made = tmp_path / "source", set[str]()
    source.mkdir()
    for lines in (LINES, LINES, LINES.replace("0.0123", "0.0124")):
        (source / "serving.properties").write_text(lines, encoding="utf-8")
        write_model(source, tmp_path, "m", load_options(source, {}))
        made.add((tmp_path / "m" / "config.pbtxt").read_text(encoding="utf-8"))
    assert len(made) == 1
