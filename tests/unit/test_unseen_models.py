"""Files of models that no rule was written for: a plan of each is made, and of the right size.

They were planned before anything was changed for them.
"""

import json
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.units import GIB
from tests.support.places import ROOT

MODELS = json.loads((ROOT / "tests/data/planner/unseen.json").read_text("utf-8"))


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_made_and_has_the_size_that_its_maker_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = MODELS[name]
    folder = tmp_path / "model"
    folder.mkdir()
    for file in ("config", "hf_quant_config"):
        if file in known:
            (folder / f"{file}.json").write_text(json.dumps(known[file]), "utf-8")
    lines = "option.rolling_batch=vllm\noption.max_model_len=8192\n"
    (folder / "serving.properties").write_text(lines, "utf-8")
    words = ["plan", str(folder), "--json", "--gpus", "8", "--gpu-memory", "178GiB"]
    assert main([*words, "--engine-version", "0.32.0"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["memory"]["num_tokens"] > 8192
    if billions := known.get("billions"):
        whole = plan["memory"]["weights"] * plan["tensor_parallel_degree"]
        is_quantised = "quantization_config" in known["config"] or "hf_quant_config" in known
        stored = 1 if is_quantised else 2
        assert whole == pytest.approx(billions * 1e9 * stored, rel=0.05), whole / GIB


def test_where_they_are_from_is_said() -> None:
    assert len(MODELS) >= 15
    assert all(each["source"].startswith("https://github.com/") for each in MODELS.values())
