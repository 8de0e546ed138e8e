"""All that moves an endpoint, from each kind of source."""

import json
import os
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.main import parser
from lmi_backend.options.table import OPTIONS, VARIABLES
from tests.unit.cli.conftest import Command

SECRET = "hf_" + "aBcDeFgHiJkLmNoPqRsTuV"
MODEL: dict[str, Any] = {
    "ModelName": "llama",
    "PrimaryContainer": {
        "Image": "1.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.33.0-lmi15.0.0-cu128",
        "ModelDataUrl": "s3://b/model.tar.gz",
        "Environment": {
            "OPTION_ROLLING_BATCH": "echo",
            "OPTION_MAX_ROLLING_BATCH_SIZE": "7",
            "HF_TOKEN": SECRET,
            "PATH": "/nowhere",
        },
    },
}
ENDPOINT: dict[str, Any] = {
    "ProductionVariants": [{"InitialInstanceCount": 3, "InstanceType": "ml.g5.12xlarge"}],
    "DataCaptureConfig": {"EnableCapture": True, "DestinationS3Uri": "s3://b/capture"},
}


def archive(tmp_path: Path, text: str = "option.rolling_batch=echo\n") -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "serving.properties").write_text(text)
    path = tmp_path / "llama.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        file.add(folder, ".")
    return path


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


Migrate = Callable[..., tuple[str, str]]


@pytest.fixture
def migrate(tmp_path: Path, command: Command) -> Migrate:
    """Run the command; return the page, and what was said."""

    def run(*words: Any, status: int = 0) -> tuple[str, str]:
        before = dict(os.environ)
        printed = command("migrate", *words, "--output", tmp_path / "out", status=status)
        assert dict(os.environ) == before
        file = tmp_path / "out" / "MIGRATION.md"
        page = file.read_text() if file.is_file() else ""
        assert SECRET not in page + printed.err
        return page, printed.err

    return run


def part(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_an_endpoint_with_its_archive(tmp_path: Path, migrate: Migrate, command: Command) -> None:
    sources = (
        archive(tmp_path),
        written(tmp_path / "model.json", MODEL),
        written(tmp_path / "config.json", ENDPOINT),
    )
    page, _ = migrate(*sources, "--to", "compose")
    out = tmp_path / "out"
    properties = (out / "models" / "llama" / "serving.properties").read_text()
    assert "option.max_rolling_batch_size=7" in properties
    assert SECRET not in properties
    assert (out / "models" / "llama" / "config.pbtxt").is_file()
    assert (out / "deploy" / "compose.yaml").is_file()
    assert "| OPTION_MAX_ROLLING_BATCH_SIZE | 7 | environment | mapped |" in part(
        page, "What stays"
    )
    assert "ml.g5.12xlarge: planned for 4 GPU(s), A10G" in part(page, "What changes")
    decisions = part(page, "What needs your decision")
    assert "set HF_TOKEN where the server runs" in decisions
    # The archive is there.
    assert "download" not in decisions
    replay = shlex.split(part(page, "Next").splitlines()[3])
    assert replay[:3] == ["lmi-backend", "replay", "s3://b/capture"]
    parser().parse_args(replay[1:])
    rows = json.loads(command("check", out / "models" / "llama", "--json").out)["options"]
    assert "7" in [row["value"] for row in rows]


def test_a_model_has_the_name_that_aws_has(
    tmp_path: Path, migrate: Migrate, command: Command
) -> None:
    """Neither that of the archive nor that of the Hub."""
    named = written(tmp_path / "model.json", MODEL | {"ModelName": "chat"})
    migrate(archive(tmp_path), named)
    assert [each.name for each in (tmp_path / "out" / "models").iterdir()] == ["chat"]
    container = {"Environment": {"HF_MODEL_ID": "org/llama", "OPTION_ROLLING_BATCH": "echo"}}
    alone = written(tmp_path / "b.json", {"ModelName": "alone", "PrimaryContainer": container})
    command("migrate", alone, "--output", tmp_path / "b")
    assert (tmp_path / "b" / "models" / "alone" / "serving.properties").is_file()


@pytest.mark.parametrize(
    ("target", "starts"),
    [
        ("kubernetes", ["kubectl apply -k {}/deploy"]),
        ("helm", ["helm install lmi-backend {}/deploy"]),
        ("compose", ["docker compose -f {}/deploy/compose.yaml up --detach"]),
        (
            "systemd",
            [
                "sudo cp {}/deploy/lmi-backend-llama.service /etc/systemd/system/",
                "sudo systemctl enable --now lmi-backend-llama.service",
            ],
        ),
    ],
)
def test_the_page_ends_with_what_starts_the_target(
    tmp_path: Path, migrate: Migrate, target: str, starts: list[str]
) -> None:
    config = written(tmp_path / "config.json", ENDPOINT)
    sources = (archive(tmp_path), written(tmp_path / "model.json", MODEL), config)
    page, _ = migrate(*sources, "--to", target)
    assert part(page, "Next").splitlines()[2:-2] == [
        start.format(tmp_path / "out") for start in starts
    ]
    runs_one = target in ("compose", "systemd")
    assert ("there are 3 instances" in part(page, "What needs your decision")) == runs_one
    text = "".join(each.read_text() for each in (tmp_path / "out" / "deploy").rglob("*.yaml"))
    assert str(tmp_path) not in text, "the folder may be copied to another machine"


def test_a_machine_without_gpus_is_planned_for_where_somebody_says_so(
    tmp_path: Path, migrate: Migrate
) -> None:
    variables = written(tmp_path / "a.env", "HF_MODEL_ID=org/llama\nOPTION_ROLLING_BATCH=vllm\n")
    page, _ = migrate(variables, "--to", "compose", status=2)
    assert "Planned for a machine without GPUs." in page
    assert "`deploy --to compose` refuses: --gpus is missing: this machine has none" in page
    assert not (tmp_path / "out" / "deploy").exists()
    page, _ = migrate(variables, "--to", "compose", "--gpu", "L4", status=3)
    assert "Planned for 1 GPU(s) of 22.04 GiB." in page
    page, errors = migrate(variables, "--to", "compose", "--gpus", "0", "--force", status=3)
    assert "Planned for a machine without GPUs." in page
    assert "exit status 3" in errors


def test_two_models_are_a_decision(tmp_path: Path, migrate: Migrate) -> None:
    text = "option.rolling_batch=vllm\noption.model_id=org/a\n"
    variables = written(tmp_path / "a.env", "HF_MODEL_ID=org/b\n")
    page, _ = migrate(archive(tmp_path, text), variables)
    decisions = part(page, "What needs your decision")
    assert "option.model_id=org/a is served, HF_MODEL_ID=org/b is not" in decisions


def test_variables_alone(tmp_path: Path, migrate: Migrate) -> None:
    text = f"# a\nexport OPTION_ROLLING_BATCH='echo'\nHF_MODEL_ID=org/llama\nHF_TOKEN={SECRET}\n"
    page, _ = migrate(written(tmp_path / "a.env", text))
    properties = tmp_path / "out" / "models" / "org_llama" / "serving.properties"
    assert "option.rolling_batch=echo" in properties.read_text()
    assert "record requests" in part(page, "What needs your decision")


def test_a_folder_is_left_as_it_is(tmp_path: Path, migrate: Migrate) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    written(folder / "serving.properties", "option.rolling_batch=echo\n")
    page, _ = migrate(folder)
    assert [path.name for path in folder.iterdir()] == ["serving.properties"]
    assert f"lmi-backend serve {folder}\n" in page


def test_a_refused_model_is_explained(tmp_path: Path, migrate: Migrate) -> None:
    text = "option.rolling_batch=echo\noption.max_rolling_batch_size=a|<b>\n"
    page, errors = migrate(archive(tmp_path, text), status=2)
    assert "max_rolling_batch_size" in part(page, "What needs your decision")
    assert "is refused: serving.properties:2: option.max_rolling_batch_size=" in errors
    assert "<b> |" not in page
    assert not (tmp_path / "out" / "models").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.json", {"a": 1}, "accepted: what `aws sagemaker describe-model`"),
        (
            "a.json",
            {"PrimaryContainer": {"Environment": {"A": 1}}},
            "Environment: A: accepted: names of letters",
        ),
        ("a.env", f"A=1\n{SECRET}\n", "a.env:2: is not a variable; accepted: NAME=VALUE"),
        ("a.tar.gz", "no archive", "cannot be unpacked"),
        ("none.env", None, "cannot be read: No such file"),
    ],
)
def test_a_wrong_source_is_refused(
    name: str, content: Any, message: str, tmp_path: Path, migrate: Migrate
) -> None:
    path = tmp_path / name
    if content is not None:
        written(path, content)
    _, errors = migrate(path, status=2)
    assert message in errors


@pytest.mark.parametrize("kind", ["outside", "absolute", "link", "hard link", "device"])
def test_an_archive_writes_nothing_elsewhere(kind: str, tmp_path: Path, migrate: Migrate) -> None:
    path = tmp_path / "a.tar.gz"
    names = {"outside": "a/../../../escaped", "absolute": str(tmp_path / "escaped")}
    member = tarfile.TarInfo(names.get(kind, "inside"))
    kinds = {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
    member.type, member.linkname = kinds.get(kind, tarfile.REGTYPE), "/etc/passwd"
    with tarfile.open(path, "w:gz") as file:
        file.addfile(member)
    _, errors = migrate(path, status=2)
    assert "is a link, a device, or outside" in errors
    assert not list(tmp_path.rglob("escaped"))


NAMES = sorted(
    {name.rstrip("*") for name in VARIABLES}
    | {name for option in OPTIONS for name in option.variables}
    | {"MAX_ROLLING_BATCH_SIZE", "MAX_LENGTH", "MAX_BEST_OF", "SAGEMAKER_REGION", "OPTIONS_DTYPE"}
    | {"SM_VLLM_DTYPE", "SM_VLLM_NO_SUCH", "OPTION_", "MY_OWN", "http_proxy", "HOME", "NCCL_DEBUG"}
)


@pytest.mark.parametrize("value", ["", "1", "false", "no", "|\n\x1b\u2028 é=`<b>"])
def test_every_variable_of_the_container_is_on_the_page(
    value: str, tmp_path: Path, migrate: Migrate
) -> None:
    environment = dict.fromkeys(NAMES, value)
    others = {name: value for name in NAMES if name.startswith("S")}
    containers = [{"Environment": environment}, {"Environment": others}]
    source = written(tmp_path / "model.json", {"Containers": containers})
    page, _ = migrate(archive(tmp_path), source, status=2)
    table = {line.split(" | ")[0].strip("| ") for line in page.splitlines() if line[:1] == "|"}
    assert {name for name in environment if name not in table} == set()
    assert "container 2, `` and its variables: SAGEMAKER_" in page


def triton_model(folder: Path, arguments: Any, **files: Any) -> Path:
    (folder / "1").mkdir(parents=True)
    written(
        folder / "config.pbtxt", 'backend: "vllm"\ninstance_group [{count: 1 kind: KIND_MODEL}]\n'
    )
    written(folder / "1" / "model.json", arguments)
    for name, value in files.items():
        written(folder / "1" / f"{name}.json", value)
    return folder


@pytest.mark.parametrize("is_repository", [False, True])
def test_a_model_of_tritons_vllm_backend(
    is_repository: bool, tmp_path: Path, migrate: Migrate
) -> None:
    arguments = {
        "model": "org/llama",
        "disable_log_requests": True,
        "gpu_memory_utilization": 0.5,
        "enable_lora": "true",
        "hf_overrides": {"a": 1},
        "tokenizer": None,
    }
    repository = tmp_path / "models"
    model = triton_model(repository / "vllm_model", arguments, multi_lora={"alpha": "org/alpha"})
    page, _ = migrate(repository if is_repository else model)
    text = (tmp_path / "out" / "models" / "vllm_model" / "serving.properties").read_text()
    assert text.splitlines() == [
        "option.rolling_batch=vllm",
        'option.lora_modules=[{"name": "alpha", "path": "org/alpha"}]',
        "option.model_id=org/llama",
        "option.disable_log_requests=true",
        "option.gpu_memory_utilization=0.5",
        "option.enable_lora=true",
        'option.hf_overrides={"a": 1}',
    ]
    assert "| option.gpu_memory_utilization | 0.5 | serving.properties:5 | mapped |" in page
    assert "config.pbtxt is written again" in part(page, "What needs your decision")


def test_one_model_of_tritons_is_named_at_a_time(tmp_path: Path, migrate: Migrate) -> None:
    for name in ("a", "b"):
        triton_model(tmp_path / "models" / name, {"model": "org/m"})
    _, errors = migrate(tmp_path / "models", status=2)
    assert "is a second folder" in errors
    for wrong in ("[]", "{", {"a b": 1}):
        folder = triton_model(tmp_path / f"wrong{len(str(wrong))}", wrong)
        _, errors = migrate(folder, status=2)
        assert "model.json" in errors


def test_other_commands_name_migrate(tmp_path: Path, command: Command) -> None:
    folder = triton_model(tmp_path / "m", {"model": "org/m"})
    assert "`lmi-backend migrate` reads" in command("check", folder, status=2).err
