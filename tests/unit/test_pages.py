"""The commands of pages that start no server, in an empty folder, one after the other."""

import json
import re
import shlex
import tarfile
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.cli.planning import UNREAD
from tests.support.records.pages import Block, blocks
from tests.support.run.places import ROOT

GPU = "docs/quickstart-gpu.md"
FLEET = "docs/triton-fleet.md"
LMI = "docs/migrating-from-lmi.md"
MOUNT = re.compile(r"-v \$PWD/my-model:(/opt/ml/model\S*):ro")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, with the model of the quick start."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    (text,) = (each.text for each in blocks(GPU) if each.language == "properties")
    (tmp_path / "my-model" / "serving.properties").write_text(text, "utf-8")
    return tmp_path


def commands(found: list[Block], *names: str) -> list[list[str]]:
    """Return the commands of these names, without those that another program answers."""
    lines = [line for block in found for line in block.text.replace("\\\n", " ").splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("lmi-backend ")]
    return [each[1:] for each in words if each[1] in names]


def test_the_quick_start_on_a_gpu_plans_without_one(folder: Path) -> None:
    of_the_hub, check, plan = commands(blocks(GPU), "check", "plan")
    # Another way to the same folder.
    assert main([word.replace("my-model", "saved") for word in of_the_hub]) == 0
    assert (folder / "saved" / "serving.properties").is_file()
    assert main(check) == 0
    # Here is no Hub, which the page names.
    assert main(plan) == UNREAD
    assert "exits with 3" in " ".join((ROOT / GPU).read_text("utf-8").split())


def test_its_request_names_the_model_as_each_way_starts_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = json.loads(re.findall(r"-d '(.*?)'", (ROOT / GPU).read_text("utf-8"))[-1])["model"]
    for page in (GPU, "README.md"):
        (place,) = MOUNT.findall((ROOT / page).read_text("utf-8"))
        store = folder / page.replace("/", "-")
        inside = store / Path(place).relative_to("/opt/ml/model")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.symlink_to(folder / "my-model")
        with monkeypatch.context() as container:
            container.setenv("SERVING_MODEL_STORE", str(store))
            assert main(["check"]) == 0
        assert capsys.readouterr().out.startswith(f"{asked}: engine vllm")
    ((_, path, *_),) = commands(blocks(GPU), "serve")
    assert main(["check", path]) == 0
    assert capsys.readouterr().out.startswith(f"{asked}: engine vllm")


def test_a_fleet_gets_its_models(folder: Path) -> None:
    found = commands(blocks(FLEET), "install-backend", "check", "convert")
    install, check, convert, further = found
    (folder / "backends").mkdir()
    assert main([install[0], str(folder / "backends")]) == 0
    for words in (check, convert, further):
        assert main(words) == 0, words
    assert (folder / "backends" / "lmi").is_dir()
    names = {each.name for each in (folder / "models").iterdir()}
    assert names == {"my-model", "my-model_trtllm", "my-model_infer"}


def test_an_endpoint_is_moved(folder: Path) -> None:
    with tarfile.open("model.tar.gz", "w:gz") as archive:
        archive.add("my-model", ".")
    container = {"Image": "djl-inference:0.33.0-lmi15.0.0", "Environment": {}}
    variant = {"InitialInstanceCount": 1, "InstanceType": "ml.g5.2xlarge"}
    for name, read in (
        ("model.json", {"ModelName": "my-model", "PrimaryContainer": container}),
        ("endpoint.json", {"ProductionVariants": [variant]}),
    ):
        Path(name).write_text(json.dumps(read), "utf-8")
    (migrate,) = commands(blocks(LMI), "migrate")
    assert main(migrate) == UNREAD
    for written in ("models/my-model", "deploy/compose.yaml", "MIGRATION.md"):
        assert (folder / "moved" / written).exists()
    check, plan, convert, store = commands(blocks(LMI), "check", "plan", "convert")
    assert store[1] == "/models/store"
    for words in (check, plan, convert):
        here = [word.replace("FOLDER", "my-model") for word in words]
        assert main(here) in (0, UNREAD), here
