"""Where a model, its adapters and the user's code are."""

from pathlib import Path

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import LmiOptions
from lmi_backend.plan.model_source import find_adapters, find_model, missing_adapters
from tests.support.records.plans import options_of, plan_of


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
    plan = plan_of(properties, folder=tmp_path)
    assert plan.engine == engine
    assert plan.config.custom_file == str(tmp_path / "model.py")


def test_an_init_handler_needs_a_predict_handler(tmp_path: Path) -> None:
    load = "@init_handler\ndef load(folder): ...\n"
    (tmp_path / "model.py").write_text(load, encoding="utf-8")
    with pytest.raises(PlanError, match="init_handler, but no predict_handler"):
        plan_of(folder=tmp_path)
    (tmp_path / "model.py").write_text(f"{load}@predict_handler\ndef f(x, model): ...\n")
    assert plan_of(folder=tmp_path).engine == "custom"


def test_an_adapters_code_runs_where_the_model_has_none(tmp_path: Path) -> None:
    adapter = tmp_path / "adapters" / "one"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}", encoding="utf-8")
    properties = "option.model_id=org/model\noption.enable_lora=true"
    assert not plan_of(properties, folder=tmp_path).config.runs_code
    (adapter / "model.py").write_text("", encoding="utf-8")
    plan = plan_of(properties, folder=tmp_path)
    assert plan.config.runs_code
    assert plan.config.custom_file == ""
    assert "code of the model's adapters is run: one" in plan.reasons


def options(folder: Path, text: str = "") -> LmiOptions:
    return options_of(text, folder=folder)


@pytest.mark.parametrize(
    ("model_id", "problem"),
    [
        ("djl://x", "is a url that is not fetched; accepted: a hub id, a local folder"),
        ("https://huggingface.co/org/m", "is a page of the Hub; write the id alone"),
        ("qwen3:8b", "is neither a folder nor a hub id; accepted: organisation/model"),
        ("/no/such/folder", "is not a folder (looked at /no/such/folder)"),
        ("./none", "is not a folder (looked at /"),
        ("~/no-such-folder", "is not a folder (looked at /"),
    ],
)
def test_a_model_that_cannot_be_had_is_refused(model_id: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError) as refusal:
        find_model(options(tmp_path, f"option.model_id={model_id}"))
    expected = f"serving.properties:1: option.model_id={model_id} {problem}"
    assert str(refusal.value).startswith(expected)


def test_a_model_beside_the_properties_needs_no_model_id(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"no model: option\.model_id is not set"):
        find_model(options(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert find_model(options(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("model_id", ["weights", "./weights", "../m/weights"])
def test_relative_model_ids_start_at_the_properties(model_id: str, tmp_path: Path) -> None:
    weights = tmp_path / "m" / "weights"
    weights.mkdir(parents=True)
    found = find_model(options(tmp_path / "m", f"option.model_id={model_id}"))
    assert found == str(weights)


def test_what_is_no_folder_is_a_hub_id(tmp_path: Path) -> None:
    for name in ("org/model", "s3://bucket/prefix"):
        assert find_model(options(tmp_path, f"option.model_id={name}")) == name


def test_echo_needs_no_model(tmp_path: Path) -> None:
    text = "option.rolling_batch=echo\noption.model_id=s3://x"
    assert find_model(options(tmp_path, text)) == ""


def test_adapters_are_the_subfolders_with_a_configuration(tmp_path: Path) -> None:
    for name in ("french", "english"):
        (tmp_path / "lora" / name).mkdir(parents=True)
        (tmp_path / "lora" / name / "adapter_config.json").write_text("{}")
    (tmp_path / "lora" / "empty").mkdir()
    asked = "option.adapters=lora\n"
    assert find_adapters(options(tmp_path, asked)) == {}
    found = find_adapters(options(tmp_path, f"{asked}option.enable_lora=true"))
    assert list(found.items()) == [
        ("english", str(tmp_path / "lora" / "english")),
        ("french", str(tmp_path / "lora" / "french")),
    ]
    assert find_adapters(options(tmp_path, "option.enable_lora=true")) == {}


@pytest.mark.parametrize("text", ["", "option.model_id=mistral"])
def test_a_model_in_mistrals_own_form_is_vllms(text: str, tmp_path: Path) -> None:
    model = tmp_path / "mistral" if text else tmp_path
    model.mkdir(exist_ok=True)
    (model / "params.json").write_text("{}")
    assert find_model(options(tmp_path, text)) == str(model)
    with pytest.raises(PlanError, match=r"params\.json.*Transformers does not read; vLLM"):
        find_model(options(tmp_path, f"option.rolling_batch=disable\n{text}"))
    (model / "config.json").write_text("{}")
    assert find_model(options(tmp_path, f"option.rolling_batch=disable\n{text}")) == str(model)


def test_adapters_that_are_named_are_added_to_those_of_the_folder(tmp_path: Path) -> None:
    for folder in ("adapters/a", "more/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "adapter_config.json").write_text("{}", "utf-8")
    lines = "option.enable_lora=true\noption.lora_modules=b=more/b,c=org/c,d=/none/d,a=adapters/a"
    found = find_adapters(options(tmp_path, lines))
    root = str(tmp_path.resolve())
    assert found == {
        "a": f"{root}/adapters/a", "b": f"{root}/more/b", "c": "org/c", "d": "/none/d"
    }  # fmt: skip
    (note,) = missing_adapters(found)
    assert "names d, whose folder is not here (looked at /none/d)" in note


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("option.lora_modules=a=/l/a", "needs option.enable_lora=true"),
        ("option.enable_lora=true\noption.lora_modules=a=/l/a", "has another adapter of this name"),
    ],
)
def test_adapters_that_cannot_be_served_are_refused(
    tmp_path: Path, lines: str, problem: str
) -> None:
    (tmp_path / "adapters/a").mkdir(parents=True)
    (tmp_path / "adapters/a/adapter_config.json").write_text("{}", "utf-8")
    with pytest.raises(OptionError, match=problem):
        find_adapters(options(tmp_path, lines))
