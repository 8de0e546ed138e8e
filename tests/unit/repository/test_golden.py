"""From serving.properties to plan and config.pbtxt, reviewed as a diff.

UPDATE_GOLDEN=1 makes the expected files anew.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from lmi_backend import __version__
from lmi_backend.options import load_options
from lmi_backend.plan import make_plan
from lmi_backend.repository.writer import write_model

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MASKS = {
    "cpu": "",
    "echo": "",
    "lora": "0,1",
    "passthrough": "0",
    "tensor_parallel_max": "0,1,2,3",
}
ADAPTERS = {"lora": ("french", "german")}


@pytest.fixture
def folder(case: str, tmp_path: Path) -> Path:
    """The case as a user's folder."""
    folder = tmp_path / case
    folder.mkdir()
    shutil.copy(GOLDEN / case / "serving.properties", folder)
    for name in ADAPTERS.get(case, ()):
        (folder / "adapters" / name).mkdir(parents=True)
        (folder / "adapters" / name / "adapter_config.json").write_text("{}")
    return folder


def agree(path: Path, made: str, folder: Path) -> None:
    """Compare with a golden file, places of this machine apart."""
    for place, name in ((folder, "FOLDER"), (sys.executable, "PYTHON"), (__version__, "VERSION")):
        made = made.replace(str(place), f"<{name}>")
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", MASKS)
def test_a_folder_is_planned_and_written_as_reviewed(
    case: str, folder: Path, tmp_path: Path
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": MASKS[case], "PATH": ""}
    plan = make_plan(load_options(folder, environment), environment)
    agree(GOLDEN / case / "plan.json", json.dumps(plan.as_dict(), indent=2) + "\n", folder)
    written = write_model(folder, tmp_path / "models", case) / "config.pbtxt"
    text = written.read_text(encoding="utf-8")
    text_format.Parse(text, model_config_pb2.ModelConfig())
    agree(GOLDEN / case / "config.pbtxt", text, folder)


def test_every_golden_folder_is_a_case() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(MASKS)
