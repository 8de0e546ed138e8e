from pathlib import Path

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.model_source import find_adapters, find_model, missing_adapters


def options(folder: Path, text: str = "") -> LmiOptions:
    return resolve_options(parse_properties(text), {}, folder=folder)


@pytest.mark.parametrize(
    ("model_id", "problem"),
    [
        ("djl://x", "is of DJL's own model zoo, whose models are made for its Java engines"),
        ("https://x/model.zip", "is a url that is not fetched; accepted: a hub id, a local folder"),
        ("https://huggingface.co/org/m", "is a page of the Hub; write the id alone"),
        ("org/m-GGUF:Q4_K_M", "names a GGUF file (Q4_K_M) as llama.cpp and Ollama do"),
        ("org/m:model-q4.gguf", "names a GGUF file (model-q4.gguf)"),
        ("qwen3:8b", "has a name after a colon, 8b, as Ollama's tags"),
        ("/no/such/folder", "is not a folder (looked at /no/such/folder)"),
        ("./none", "is not a folder (looked at /"),
        ("../none", "is not a folder (looked at /"),
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
