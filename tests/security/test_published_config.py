"""Read options, paths and secrets in the configuration that Triton gives to any client."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc

from lmi_backend.options import load_options
from lmi_backend.repository.files import Record
from lmi_backend.repository.variants import VARIANTS, Alias
from lmi_backend.repository.writer import write_alias_model, write_model
from tests.support.serving import Served, answer_of, serve

SECRET = "0123456789-of-nobody"
LINES = (
    "option.rolling_batch=echo\n"
    "option.token_seconds=0.0123\n"
    f"option.env=NOTHING_SAID={SECRET}\n"
    f"option.model_id=https://user:{SECRET}@hub/model\n"
)
MODEL = "unseen"
FORMS = [MODEL, f"{MODEL}_infer"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret-place") / MODEL
    folder.mkdir()
    (folder / "serving.properties").write_text(LINES, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve([folder], tmp_path_factory.mktemp("run"), "--clients", "infer") as running:
        yield running


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
        names = {"options_digest"} if form == MODEL else {"shares", "clients"}
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


def digest_of(config: Path) -> str:
    found = re.search(r'"options_digest"\s*value {\s*string_value: "(\w+)"', config.read_text())
    assert found
    return found[1]


def convert(source: Path, repository: Path, lines: str, **options: Any) -> Path:
    (source / "serving.properties").write_text(lines, encoding="utf-8")
    write_model(source, repository, "m", load_options(source, {}), **options)
    return repository / "m"


def test_the_digest_does_not_let_a_value_be_guessed(tmp_path: Path) -> None:
    """Who knows all options but one may not find it by trying its values."""
    source = tmp_path / "source"
    source.mkdir()
    lines = "option.rolling_batch=echo\noption.env=PIN=4711\n"
    here, there = (convert(source, tmp_path / name, lines) for name in ("a", "b"))
    assert digest_of(here / "config.pbtxt") != digest_of(there / "config.pbtxt")
    record = Record.read(here)
    assert record is not None
    assert len(record.salt) == 32
    assert record.digest == digest_of(here / "config.pbtxt")
    assert record.salt not in (here / "config.pbtxt").read_text()
    # Nor may the digest of the whole file, in a comment.
    other = convert(source, tmp_path / "a", lines.replace("4711", "1234"), force=True)
    first_lines = other.joinpath("config.pbtxt").read_text().split("name:")[0]
    assert "properties " not in first_lines.replace("serving.properties", "")


def test_the_same_options_make_the_same_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    before = convert(source, tmp_path, LINES)
    texts = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
    convert(source, tmp_path, LINES)
    assert {path: path.read_bytes() for path in before.rglob("*") if path.is_file()} == texts
    changed = convert(source, tmp_path, LINES.replace("0.0123", "0.0124"))
    assert (changed / "config.pbtxt").read_bytes() != texts[changed / "config.pbtxt"]
