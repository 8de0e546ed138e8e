import argparse
from pathlib import Path

import pytest

from lmi_backend.cli.aliases import add_clients, model_names
from lmi_backend.errors import ConfigurationError
from lmi_backend.repository.variants import VARIANTS, Alias
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command, Printed

TRTLLM = VARIANTS["trtllm"]


def clients(text: str) -> list[Alias]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_clients(parser)
    aliases: list[Alias] = parser.parse_args(["--clients", text]).clients
    return aliases


def test_aliases_have_the_names_that_were_chosen() -> None:
    aliases = clients("vllm,trtllm=ensemble, trtllm = tensorrt_llm,infer,infer")
    assert aliases == [
        Alias(TRTLLM, "ensemble"),
        Alias(TRTLLM, "tensorrt_llm"),
        Alias(VARIANTS["infer"]),
    ]
    assert model_names(["m"], aliases) == ["m", "ensemble", "tensorrt_llm", "m_infer"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ensemble", "'ensemble' is unknown; accepted: vllm, trtllm,"),
        ("vllm=ensemble", "vllm is the model itself"),
        ("trtllm=", "model name ''"),
        ("trtllm=../x", "model name '../x'; accepted: letters, digits"),
    ],
)
def test_what_is_no_alias_is_refused(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentError, match="--clients") as refused:
        clients(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("models", "text", "message"),
    [
        (["a", "b"], "trtllm=ensemble", "ensemble: names one model, but there are 2"),
        (["ensemble"], "trtllm=ensemble", "2 models would be named ensemble"),
        (["a"], "trtllm=x,trtllm_infer=x", "2 models would be named x"),
        (["a", "a_trtllm"], "trtllm", "2 models would be named a_trtllm"),
    ],
)
def test_two_models_have_two_names(models: list[str], text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_names(models, clients(text))


def test_convert_knows_its_own_alias_again_and_no_other(tmp_path: Path, command: Command) -> None:
    echo = write_properties(tmp_path / "echo", {"option.rolling_batch": "echo"})
    other = write_properties(tmp_path / "other", {"option.rolling_batch": "echo"})
    repository = tmp_path / "models"
    (repository / "preprocessing").mkdir(parents=True)
    (repository / "preprocessing" / "config.pbtxt").write_text('name: "preprocessing"\n')

    def convert(source: Path, name: str, *more: str, status: int = 0) -> Printed:
        words = ("convert", source, "--repository", repository, "--clients", f"trtllm={name}")
        return command(*words, *more, status=status)

    for _ in range(2):
        written = convert(echo, "ensemble").out
        assert written == f"{repository / 'echo'}\n{repository / 'ensemble'}\n"
    errors = convert(other, "ensemble", status=2).err
    assert "ensemble: is an alias model of echo; accepted: another name, or --force" in errors
    errors = convert(echo, "preprocessing", status=2).err
    assert "preprocessing: is a model; accepted: another name" in errors
    convert(other, "ensemble", "--force")
