import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.cli.deploy import manifest_name
from lmi_backend.cli.planning import UNREAD
from tests.support.records.published_logs import known_configs
from tests.support.run.places import ROOT
from tests.support.servers.serving import write_properties
from tests.unit.cli.conftest import Command

CONFIGS = known_configs()
ECHO = {"option.rolling_batch": "echo"}
Deploy = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_properties(tmp_path / "model", ECHO)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Where the files are written."""
    return tmp_path / "fleet"


@pytest.fixture
def deploy(folder: Path, fleet: Path, command: Command) -> Deploy:
    """Run the command, by default for Kubernetes and a CPU; return what it said."""

    def run(*more: str, to: str = "kubernetes", status: int = 0) -> str:
        words = ["deploy", folder, "--to", to, "--output", fleet, "--gpus", "0"]
        return command(*words, *more, status=status).err

    return run


def test_the_files_are_named_and_written_once(
    folder: Path, fleet: Path, command: Command, deploy: Deploy
) -> None:
    words = ("deploy", folder, "--to", "kubernetes", "--output", fleet, "--gpus", "0")
    named = {Path(line) for line in command(*words).out.splitlines()}
    assert named == {path for path in fleet.rglob("*") if path.is_file()}
    deploy()
    changed = fleet / "needs.yaml"
    changed.write_text("mine", "utf-8")
    assert f"{changed}: differs from what would be written; --force" in deploy(status=2)
    assert changed.read_text("utf-8") == "mine"
    deploy("--force")
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
    words: tuple[str, ...], message: str, fleet: Path, deploy: Deploy
) -> None:
    assert message in deploy(*words, status=2)
    assert not fleet.exists()


@pytest.mark.parametrize("kind", ["folder", "bytes", "size"])
def test_what_no_config_map_takes_needs_a_claim(kind: str, folder: Path, deploy: Deploy) -> None:
    if kind == "folder":
        (folder / "adapters").mkdir()
    else:
        (folder / "weights").write_bytes(b"\xff" if kind == "bytes" else b" " * (1 << 20))
    assert "name its claim with --model-claim" in deploy(status=2)
    deploy("--model-claim", "models")


def test_a_secret_that_goes_into_a_config_map_is_said(folder: Path, deploy: Deploy) -> None:
    write_properties(folder, ECHO | {"option.env": "HF_TOKEN=hf_abcdefgh"})
    errors = deploy()
    assert "HF_TOKEN: may be secret, and is written into a ConfigMap" in errors
    assert "hf_abcdefgh" not in errors


def test_a_model_of_several_machines_is_for_the_overlay(folder: Path, deploy: Deploy) -> None:
    vllm = {"option.rolling_batch": "vllm", "option.tensor_parallel_degree": 2}
    (folder / "hosts").write_text("a\nb\n", "utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    write_properties(folder, {"engine": "MPI", **vllm, "option.mpi_hostfile": "hosts"})
    assert "spans 2 nodes; deploy writes servers of one node" in deploy(status=2)
    write_properties(folder, vllm | {"option.tensor_parallel_degree": 16})
    assert "8 usable" in deploy("--gpus", "8", status=2)


@pytest.mark.parametrize("words", [(), ("--namespace", "n"), ("--to", "helm")])
def test_keda_without_a_namespace_counts_pods_of_all(
    words: tuple[str, ...], deploy: Deploy
) -> None:
    errors = deploy("--with", "keda", *words)
    assert ("pods of this name in every namespace" in errors) is (not words)


def test_files_are_written_without_a_size_and_a_pipeline_stops(
    folder: Path, fleet: Path, command: Command, deploy: Deploy
) -> None:
    """As `plan` has it: `deploy … && kubectl apply …` applies nothing that was not checked."""
    write_properties(folder, {"option.rolling_batch": "vllm", "option.model_id": "org/m"})
    machine = ("--gpus", "1", "--gpu-memory", "80GiB")
    errors = deploy(*machine, status=UNREAD)
    assert "model: written without the model's size" in errors
    command("plan", folder, *machine, status=UNREAD)
    assert (fleet / "kustomization.yaml").is_file()


@pytest.mark.parametrize(("target", "is_named"), [("kubernetes", True), ("systemd", False)])
def test_a_model_elsewhere_on_this_machine_is_named(
    target: str, is_named: bool, folder: Path, tmp_path: Path, deploy: Deploy
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    write_properties(folder, {"option.rolling_batch": "vllm", "option.model_id": weights})
    assert (f"mount {weights} at the same path" in deploy(to=target)) is is_named


def test_a_folder_that_a_unit_does_not_see_is_named(tmp_path: Path, command: Command) -> None:
    echo = ROOT / "model_repository" / "lmi_echo"
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        hidden = write_properties(Path(temporary) / "model", ECHO)
        for folder, is_hidden in (
            (hidden, True),
            (echo, echo.is_relative_to("/tmp") or echo.is_relative_to("/var/tmp")),
        ):
            words = ("deploy", folder, "--to", "systemd", "--output", tmp_path / folder.name)
            assert (f"move {folder}: the unit" in command(*words).err) is is_hidden


@pytest.mark.parametrize("to", ["kubernetes", "helm", "compose"])
def test_a_plan_for_another_machine_is_not_taken_from_this_one(
    to: str, folder: Path, fleet: Path, command: Command
) -> None:
    """The unit of systemd runs here."""
    write_properties(folder, {"option.rolling_batch": "vllm"})
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen/Qwen3-8B"]), "utf-8")
    words = ("deploy", folder, "--to", to, "--output", fleet)
    assert "--gpus is missing: this machine has none" in command(*words, status=2).err
    assert not fleet.exists()
    assert "model: planned for 1 GPU(s) of 79.19 GiB" in command(*words, "--gpu", "H100").err
