import json
import tempfile
from pathlib import Path

import pytest

from lmi_backend.cli import main
from lmi_backend.cli.deploy import manifest_name
from lmi_backend.cli.planning import UNREAD
from tests.support.records.published_logs import known_configs
from tests.support.run.places import ROOT

CONFIGS = known_configs()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    return folder


def _deploy(folder: Path, output: Path, *more: str, to: str = "kubernetes") -> int:
    words = ["deploy", str(folder), "--to", to, "--output", str(output), "--gpus", "0"]
    return main.main([*words, *more])


def test_the_files_are_named_and_written_once(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "fleet"
    assert _deploy(folder, output) == 0
    named = {Path(line) for line in capsys.readouterr().out.splitlines()}
    assert named == {path for path in output.rglob("*") if path.is_file()}
    assert _deploy(folder, output) == 0
    changed = output / "needs.yaml"
    changed.write_text("mine", "utf-8")
    assert _deploy(folder, output) == 2
    assert f"{changed}: differs from what would be written; --force" in capsys.readouterr().err
    assert changed.read_text("utf-8") == "mine"
    assert _deploy(folder, output, "--force") == 0
    assert changed.read_text("utf-8") != "mine"


@pytest.mark.parametrize(
    ("name", "taken"),
    [("Llama_3.1-8B", "llama-3-1-8b"), ("é", "model"), ("-a-", "a"), ("x" * 90, "x" * 40)],
)
def test_a_name_is_made_one_of_kubernetes(name: str, taken: str) -> None:
    assert manifest_name(name) == taken


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--replicas", "0"), "--replicas: 0; accepted: a number, 1 to 1000"),
        (("--image", "a b\nc: d"), "--image: a b\\nc: d; accepted: an image's name"),
        (("--model-claim", "A"), "--model-claim: A; accepted: a name of Kubernetes"),
        (("--with", "keda,x"), "--with: x; accepted: monitor, keda, gateway, lora, cache"),
        (("--with", "cache", "--cache-claim", "c"), "accepted: one of them"),
        (("--cache-claim", "A"), "--cache-claim: A; accepted: a name of Kubernetes"),
        (("--to", "compose", "--replicas", "3"), "--replicas: needs --to kubernetes or helm"),
        (("--to", "systemd", "--model-claim", "c"), "--model-claim: needs --to kubernetes or helm"),
        (("--to", "helm", "--namespace", "n"), "helm install has its own"),
    ],
)
def test_what_makes_no_manifest_is_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    try:
        status: object = _deploy(folder, tmp_path / "fleet", *words)
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "fleet").exists()


@pytest.mark.parametrize("kind", ["folder", "bytes", "size"])
def test_what_no_config_map_takes_needs_a_claim(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    if kind == "folder":
        (folder / "adapters").mkdir()
    else:
        (folder / "weights").write_bytes(b"\xff" if kind == "bytes" else b" " * (1 << 20))
    assert _deploy(folder, tmp_path / "fleet") == 2
    assert "name its claim with --model-claim" in capsys.readouterr().err
    assert _deploy(folder, tmp_path / "fleet", "--model-claim", "models") == 0


def test_a_secret_that_goes_into_a_config_map_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "option.rolling_batch=echo\noption.env=HF_TOKEN=hf_abcdefgh\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    assert _deploy(folder, tmp_path / "fleet") == 0
    errors = capsys.readouterr().err
    assert "HF_TOKEN: may be secret, and is written into a ConfigMap" in errors
    assert "hf_abcdefgh" not in errors


def test_a_model_of_several_machines_is_for_the_overlay(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "engine=MPI\noption.rolling_batch=vllm\noption.tensor_parallel_degree=2\n"
    (folder / "hosts").write_text("a\nb\n", "utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    (folder / "serving.properties").write_text(f"{text}option.mpi_hostfile=hosts\n", "utf-8")
    assert _deploy(folder, tmp_path / "fleet") == 2
    assert "spans 2 nodes; deploy writes servers of one node" in capsys.readouterr().err
    text = "option.rolling_batch=vllm\noption.tensor_parallel_degree=16\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    assert _deploy(folder, tmp_path / "fleet", "--gpus", "8") == 2
    assert "8 usable" in capsys.readouterr().err


@pytest.mark.parametrize("words", [(), ("--namespace", "n"), ("--to", "helm")])
def test_keda_without_a_namespace_counts_pods_of_all(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert _deploy(folder, tmp_path / "fleet", "--with", "keda", *words) == 0
    assert ("pods of this name in every namespace" in capsys.readouterr().err) is (not words)


def test_files_are_written_without_a_size_and_a_pipeline_stops(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `plan` has it: `deploy … && kubectl apply …` applies nothing that was not checked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    text = "option.rolling_batch=vllm\noption.model_id=org/m\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    machine = ("--gpus", "1", "--gpu-memory", "80GiB")
    assert _deploy(folder, tmp_path / "fleet", *machine) == UNREAD
    assert "model: written without the model's size" in capsys.readouterr().err
    assert main.main(["plan", str(folder), *machine]) == UNREAD
    assert (tmp_path / "fleet" / "kustomization.yaml").is_file()


@pytest.mark.parametrize(("target", "is_named"), [("kubernetes", True), ("systemd", False)])
def test_a_model_elsewhere_on_this_machine_is_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, is_named: bool
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    text = f"option.rolling_batch=vllm\noption.model_id={weights}\n"
    (folder / "serving.properties").write_text(text, "utf-8")
    assert _deploy(folder, tmp_path / "fleet", to=target) == 0
    assert (f"mount {weights} at the same path" in capsys.readouterr().err) is is_named


def test_a_folder_that_a_unit_does_not_see_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo = ROOT / "model_repository" / "lmi_echo"
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        hidden = Path(temporary) / "model"
        hidden.mkdir()
        (hidden / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
        for folder, is_hidden in (
            (hidden, True),
            (echo, echo.is_relative_to("/tmp") or echo.is_relative_to("/var/tmp")),
        ):
            assert _deploy(folder, tmp_path / folder.name, to="systemd") == 0
            assert (f"move {folder}: the unit" in capsys.readouterr().err) is is_hidden


@pytest.mark.parametrize("to", ["kubernetes", "helm", "compose"])
def test_a_plan_for_another_machine_is_not_taken_from_this_one(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The unit of systemd runs here."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=vllm\n", "utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    words = ["deploy", str(folder), "--to", to, "--output", str(tmp_path / "out")]
    assert main.main(words) == 2
    assert "--gpus is missing: this machine has none" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main.main([*words, "--gpu", "H100"]) == 0
    assert "model: planned for 1 GPU(s) of 79.19 GiB" in capsys.readouterr().err
