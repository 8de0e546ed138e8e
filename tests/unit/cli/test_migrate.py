"""All that moves an endpoint, from each kind of source."""

import json
import os
import shlex
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi_backend.cli.main import main, parser
from lmi_backend.options.table import OPTIONS, VARIABLES

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


def migrate(tmp_path: Path, *words: Any, status: int = 0) -> str:
    output = tmp_path / "out"
    before = dict(os.environ)
    assert main(["migrate", *map(str, words), "--output", str(output)]) == status
    assert dict(os.environ) == before
    page = output / "MIGRATION.md"
    text = page.read_text() if page.is_file() else ""
    assert SECRET not in text
    return text


def part(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_an_endpoint_with_its_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = (
        archive(tmp_path),
        written(tmp_path / "model.json", MODEL),
        written(tmp_path / "config.json", ENDPOINT),
    )
    page = migrate(tmp_path, *sources, "--to", "compose")
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
    start, replay = [shlex.split(line) for line in part(page, "Next").splitlines()[2:4]]
    assert start == ["docker", "compose", "-f", str(out / "deploy/compose.yaml"), "up", "--detach"]
    assert replay[:3] == ["lmi-backend", "replay", "s3://b/capture"]
    parser().parse_args(replay[1:])
    capsys.readouterr()
    assert main(["check", str(out / "models" / "llama"), "--json"]) == 0
    assert "7" in [row["value"] for row in json.loads(capsys.readouterr().out)["options"]]


def test_a_model_has_the_name_that_aws_has(tmp_path: Path) -> None:
    """Neither that of the archive nor that of the Hub."""
    named = written(tmp_path / "model.json", MODEL | {"ModelName": "chat"})
    migrate(tmp_path, archive(tmp_path), named)
    assert [each.name for each in (tmp_path / "out" / "models").iterdir()] == ["chat"]
    container = {"Environment": {"HF_MODEL_ID": "org/llama", "OPTION_ROLLING_BATCH": "echo"}}
    alone = written(tmp_path / "b.json", {"ModelName": "alone", "PrimaryContainer": container})
    assert main(["migrate", str(alone), "--output", str(tmp_path / "b")]) == 0
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
    tmp_path: Path, target: str, starts: list[str]
) -> None:
    config = written(tmp_path / "config.json", ENDPOINT)
    sources = (archive(tmp_path), written(tmp_path / "model.json", MODEL), config)
    page = migrate(tmp_path, *sources, "--to", target)
    assert part(page, "Next").splitlines()[2:-2] == [
        start.format(tmp_path / "out") for start in starts
    ]
    runs_one = target in ("compose", "systemd")
    assert ("there are 3 instances" in part(page, "What needs your decision")) == runs_one
    text = "".join(each.read_text() for each in (tmp_path / "out" / "deploy").rglob("*.yaml"))
    assert str(tmp_path) not in text, "the folder may be copied to another machine"


def test_a_machine_without_gpus_is_planned_for_where_somebody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = written(tmp_path / "a.env", "HF_MODEL_ID=org/llama\nOPTION_ROLLING_BATCH=vllm\n")
    page = migrate(tmp_path, variables, "--to", "compose", status=2)
    assert "Planned for a machine without GPUs." in page
    assert "`deploy --to compose` refuses: --gpus is missing: this machine has none" in page
    assert not (tmp_path / "out" / "deploy").exists()
    page = migrate(tmp_path, variables, "--to", "compose", "--gpu", "L4", status=3)
    assert "Planned for 1 GPU(s) of 22.04 GiB." in page
    page = migrate(tmp_path, variables, "--to", "compose", "--gpus", "0", "--force", status=3)
    assert "Planned for a machine without GPUs." in page
    lines = capsys.readouterr().err.splitlines()
    assert any("exit status 3" in line for line in lines)


def test_two_models_are_a_decision(tmp_path: Path) -> None:
    text = "option.rolling_batch=vllm\noption.model_id=org/a\n"
    variables = written(tmp_path / "a.env", "HF_MODEL_ID=org/b\n")
    decisions = part(
        migrate(tmp_path, archive(tmp_path, text), variables), "What needs your decision"
    )
    assert "option.model_id=org/a is served, HF_MODEL_ID=org/b is not" in decisions


def test_variables_alone(tmp_path: Path) -> None:
    text = f"# a\nexport OPTION_ROLLING_BATCH='echo'\nHF_MODEL_ID=org/llama\nHF_TOKEN={SECRET}\n"
    page = migrate(tmp_path, written(tmp_path / "a.env", text))
    assert (
        "option.rolling_batch=echo"
        in (tmp_path / "out" / "models" / "org_llama" / "serving.properties").read_text()
    )
    assert "record requests" in part(page, "What needs your decision")


def test_a_folder_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folder.mkdir()
    written(folder / "serving.properties", "option.rolling_batch=echo\n")
    page = migrate(tmp_path, folder)
    assert [path.name for path in folder.iterdir()] == ["serving.properties"]
    assert f"lmi-backend serve {folder}\n" in page


def test_a_refused_model_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "option.rolling_batch=echo\noption.max_rolling_batch_size=a|<b>\n"
    page = migrate(tmp_path, archive(tmp_path, text), status=2)
    assert "max_rolling_batch_size" in part(page, "What needs your decision")
    assert (
        "is refused: serving.properties:2: option.max_rolling_batch_size="
        in capsys.readouterr().err
    )
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
    name: str, content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        written(path, content)
    migrate(tmp_path, path, status=2)
    error = capsys.readouterr().err
    assert message in error
    assert SECRET not in error


@pytest.mark.parametrize("kind", ["outside", "absolute", "link", "hard link", "device"])
def test_an_archive_writes_nothing_elsewhere(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar.gz"
    names = {"outside": "a/../../../escaped", "absolute": str(tmp_path / "escaped")}
    member = tarfile.TarInfo(names.get(kind, "inside"))
    kinds = {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
    member.type, member.linkname = kinds.get(kind, tarfile.REGTYPE), "/etc/passwd"
    with tarfile.open(path, "w:gz") as file:
        file.addfile(member)
    migrate(tmp_path, path, status=2)
    assert "is a link, a device, or outside" in capsys.readouterr().err
    assert not list(tmp_path.rglob("escaped"))


NAMES = sorted(
    {name.rstrip("*") for name in VARIABLES}
    | {name for option in OPTIONS for name in option.variables}
    | {"MAX_ROLLING_BATCH_SIZE", "MAX_LENGTH", "MAX_BEST_OF", "SAGEMAKER_REGION", "OPTIONS_DTYPE"}
    | {"SM_VLLM_DTYPE", "SM_VLLM_NO_SUCH", "OPTION_", "MY_OWN", "http_proxy", "HOME", "NCCL_DEBUG"}
)


@pytest.mark.parametrize("value", ["", "1", "false", "no"])
def test_every_variable_of_the_container_is_on_the_page(value: str, tmp_path: Path) -> None:
    environment = dict.fromkeys(NAMES, value)
    others = {name: value for name in NAMES if name.startswith("S")}
    containers = [{"Environment": environment}, {"Environment": others}]
    source = written(tmp_path / "model.json", {"Containers": containers})
    page = migrate(tmp_path, archive(tmp_path), source, status=2)
    table = {line.split(" | ")[0].strip("| ") for line in page.splitlines() if line[:1] == "|"}
    assert {name for name in environment if name not in table} == set()
    assert "container 2, `` and its variables: SAGEMAKER_" in page


@given(
    st.dictionaries(
        st.from_regex(
            r"(OPTION_|SERVING_|SM_VLLM_|MAX_|)[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True
        ),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
        max_size=8,
    )
)
@settings(max_examples=20, deadline=None)
def test_no_variable_is_passed_over(environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder / "serving.properties", "option.rolling_batch=echo\n")
        described = {"PrimaryContainer": {"Environment": environment}}
        source = written(folder / "model.json", described)
        main(["migrate", name, str(source), "--output", str(folder / "out")])
        page = (folder / "out" / "MIGRATION.md").read_text()
    assert all(f"| {name} |" in page for name in environment)


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
def test_a_model_of_tritons_vllm_backend(is_repository: bool, tmp_path: Path) -> None:
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
    page = migrate(tmp_path, repository if is_repository else model)
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


def test_one_model_of_tritons_is_named_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        triton_model(tmp_path / "models" / name, {"model": "org/m"})
    migrate(tmp_path, tmp_path / "models", status=2)
    assert "is a second folder" in capsys.readouterr().err
    for wrong in ("[]", "{", {"a b": 1}):
        folder = triton_model(tmp_path / f"wrong{len(str(wrong))}", wrong)
        migrate(tmp_path, folder, status=2)
        assert "model.json" in capsys.readouterr().err


def test_other_commands_name_migrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = triton_model(tmp_path / "m", {"model": "org/m"})
    assert main(["check", str(folder)]) == 2
    assert "`lmi-backend migrate` reads" in capsys.readouterr().err
