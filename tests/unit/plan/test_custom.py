from pathlib import Path

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan


@pytest.mark.parametrize(
    ("definition", "properties", "engine"),
    [
        ("async def", "", "custom"),
        ("async def", "option.model_id=org/model", "vllm"),
        ("async def", "option.rolling_batch=echo", "echo"),
        ("def", "", "custom"),
        ("def", "option.model_id=org/model", "custom"),
    ],
)
def test_a_handler_replaces_the_engine_where_there_is_no_model(
    tmp_path: Path, definition: str, properties: str, engine: str
) -> None:
    """An asynchronous one may leave requests to the engine, if there can be one."""
    (tmp_path / "model.py").write_text(f"{definition} handle(inputs): ...\n", encoding="utf-8")
    options = resolve_options(parse_properties(properties), {}, folder=tmp_path)
    plan = make_plan(options, {"PATH": "/bin"}, Hardware(), None)
    assert plan.engine == engine
    assert plan.config.custom_file == str(tmp_path / "model.py")


def test_an_init_handler_needs_a_predict_handler(tmp_path: Path) -> None:
    load = "@init_handler\ndef load(folder): ...\n"
    (tmp_path / "model.py").write_text(load, encoding="utf-8")
    options = resolve_options([], {}, folder=tmp_path)
    with pytest.raises(PlanError, match="init_handler, but no predict_handler"):
        make_plan(options, {"PATH": "/bin"}, Hardware(), None)
    (tmp_path / "model.py").write_text(f"{load}@predict_handler\ndef f(x, model): ...\n")
    assert make_plan(options, {"PATH": "/bin"}, Hardware(), None).engine == "custom"


def test_an_adapters_code_runs_where_the_model_has_none(tmp_path: Path) -> None:
    adapter = tmp_path / "adapters" / "one"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}", encoding="utf-8")
    properties = "option.model_id=org/model\noption.enable_lora=true"
    options = resolve_options(parse_properties(properties), {}, folder=tmp_path)
    plan = make_plan(options, {"PATH": "/bin"}, Hardware(), None)
    assert not plan.config.runs_code
    (adapter / "model.py").write_text("", encoding="utf-8")
    plan = make_plan(options, {"PATH": "/bin"}, Hardware(), None)
    assert plan.config.runs_code
    assert plan.config.custom_file == ""
    assert "code of the model's adapters is run: one" in plan.reasons
