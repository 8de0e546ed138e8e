from pathlib import Path

import pytest

from lmi_backend import api
from tests.support.records.pages import blocks
from tests.support.run.places import TESTS

EXAMPLES = [each.text for each in blocks("docs/commands.md") if each.language == "python"]
LLAMA = (TESTS / "golden" / "vllm_starter" / "config.json").read_text("utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my-model"
    folder.mkdir()
    text = "option.rolling_batch=vllm\noption.max_model_len=2048\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    (folder / "config.json").write_text(LLAMA, "utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_page_run(
    example: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(EXAMPLES) == 3
    exec(compile(example, "docs/commands.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_a_plan_is_of_the_machine_that_is_given(folder: Path) -> None:
    one = api.plan(folder, api.Machine(gpus=1, gpu_memory="80GiB"))
    assert (one.engine, one.mode, one.workers, one.device_groups) == (
        "vllm",
        "python",
        1,
        (("0",),),
    )
    two = api.plan(folder, api.Machine(gpus=2, gpu_memory="24GiB"))
    assert two.workers * two.tensor_parallel == 2
    assert None not in (one.kv_cache_tokens, two.kv_cache_tokens)
    assert (one.kv_cache_tokens or 0) > (two.kv_cache_tokens or 0)
    assert one.engine_arguments["max_model_len"] == 2048


def test_what_is_refused_is_told_and_no_plan_is_made(folder: Path) -> None:
    properties = folder / "serving.properties"
    properties.write_text("option.max_model_length=2048\noption.rolling_batch=vllm\n", "utf-8")
    checked = api.check(folder)
    assert not checked.is_served
    assert "option.max_model_len" in checked.problems[0]
    machine = api.Machine(gpus=1, gpu_memory="8GiB")
    properties.write_text("option.rolling_batch=vllm\n", "utf-8")
    with pytest.raises(api.ConfigurationError):
        api.plan(folder, machine)
    with pytest.raises(api.ConfigurationError, match="--gpus -1"):
        api.check(folder, api.Machine(gpus=-1))


def test_a_secret_is_in_no_result(folder: Path) -> None:
    text = "option.rolling_batch=vllm\noption.env=HF_TOKEN=swordfish-1\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    machine = api.Machine(gpus=1, gpu_memory="80GiB")
    assert "swordfish" not in f"{api.check(folder, machine)} {api.plan(folder, machine)}"


def test_options_are_those_of_an_engine() -> None:
    names = {option.name for option in api.options("vllm")}
    assert "option.max_model_len" in names
    assert api.options() == api.options("vllm")
    with pytest.raises(api.ConfigurationError, match=r"engine 'x'; accepted: .*vllm"):
        api.options("x")
