"""Files of models that no rule was written for: a plan of each is made, and of the right size.

They were planned before anything was changed for them.
"""

import json
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from lmi_backend.printable import GIB
from tests.support.records.published_logs import facts_of
from tests.support.run.places import ROOT

MODELS = json.loads((ROOT / "tests/data/planner/unseen.json").read_text("utf-8"))
QUOTED = json.loads((ROOT / "tests/data/planner/quoted.json").read_text("utf-8"))
"""Files by the fields that others quote of them: their published counts check each of these."""
COUNTED = QUOTED | {name: each for name, each in MODELS.items() if "is_exact" in each}


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


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_as_many_as_are_published(name: str) -> None:
    """To 1 %, and every field that may mean memory is read."""
    config, billions = COUNTED[name]["config"], COUNTED[name]["billions"]
    found = facts_of(config)
    stored = 1 if "quantization_config" in config else 2
    assert found.weights.total / 1e9 == pytest.approx(billions * stored, rel=0.01)
    assert found.unread == ()


def test_the_last_layer_with_experts_and_their_offset_are_read() -> None:
    ernie = QUOTED["baidu/ERNIE-4.5-21B-A3B-PT"]["config"]
    whole, fewer = facts_of(ernie), facts_of(ernie | {"moe_layer_end_index": 20})
    assert fewer.weights.total < 0.8 * whole.weights.total
    jamba = QUOTED["ai21labs/Jamba-v0.1"]["config"]
    assert facts_of(jamba | {"expert_layer_offset": 0}).weights.total == pytest.approx(
        facts_of(jamba).weights.total, rel=0.01
    )
