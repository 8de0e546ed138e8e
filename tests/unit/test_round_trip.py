"""What a pod, a container or a unit is given makes the plan that `deploy` made."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from lmi_backend.cli import main
from lmi_backend.cli.deploy import OF_PODS
from lmi_backend.cli.planning import UNREAD
from tests.support.records.manifests import container, pods, rendered

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SEVERAL_NODES = re.compile(
    r"two_nodes|nodes_of_vllm|mpi_cluster|max_cluster|mpi_hostfile|mpi_hosts"
)
CASES = sorted(
    path.name
    for path in GOLDEN.iterdir()
    if not path.name.startswith("refused_") and not SEVERAL_NODES.search(path.name)
)
MADE = ("plan.json", "command.txt", "env.json", "hardware.json")
Seen = tuple[list[str], dict[str, str], dict[str, Path]]
"""Arguments of the command, its variables, and folder to where its files are."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The Hub's cache, in an environment that configures no model."""
    for name in ("PYTHON_EXECUTABLE", "SERVING_FEATURES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def _fill(hub: Path, folder: Path, given: dict[str, str]) -> None:
    """Put config.json of a case where the Hub's cache would have it."""
    text = (folder / "serving.properties").read_text("utf-8")
    named = re.findall(r"model_id=(\w\S*/\S+)$", text, re.MULTILINE)
    for name in (*named, *(value for value in given.values() if "/" in value)):
        cache = hub / f"models--{name.replace('/', '--')}"
        for place in (cache / "refs", cache / "snapshots" / "a"):
            place.mkdir(parents=True, exist_ok=True)
        (cache / "refs" / "main").write_text("a", "utf-8")
        if (folder / "config.json").is_file():
            shutil.copy(folder / "config.json", cache / "snapshots" / "a")


def _in_kubernetes(output: Path, folder: Path) -> Seen:
    pod = yaml.safe_load((output / "needs.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"]: each["value"].replace("$$(", "$(") for each in container.get("env", ())}
    files = output / "model" if (output / "model").exists() else folder
    mounts = [one["mountPath"] for one in container.get("volumeMounts", ()) if "name" in one]
    return container["args"], given, dict.fromkeys(mounts, files)


def _in_helm(output: Path, folder: Path) -> Seen:
    things = {each["kind"]: each for each in rendered(output, "r")}
    ((_, pod),) = pods([things["Deployment"]])
    given = {one["name"]: one["value"] for one in container(pod)["env"] if "value" in one}
    assert {given.pop("HOME"), given.pop("SERVING_DOWNLOAD_DIR")} == {"/cache", "/cache/models"}
    files = output / "seen"
    for name, text in things.get("ConfigMap", {}).get("data", {}).items():
        files.mkdir(exist_ok=True)
        (files / name).write_bytes(text.encode())
    is_map = "ConfigMap" in things
    mounts = [one["mountPath"] for one in container(pod)["volumeMounts"] if one["name"] == "model"]
    given = {name: value.replace("$$(", "$(") for name, value in given.items()}
    return container(pod)["args"], given, dict.fromkeys(mounts, files if is_map else folder)


def _in_compose(output: Path, _: Path) -> Seen:
    whole = yaml.safe_load((output / "compose.yaml").read_text("utf-8"))
    (service,) = whole["services"].values()
    pairs = [each.replace("$$", "$").split("=", 1) for each in service["environment"]]
    binds = (one for one in service["volumes"] if one["type"] == "bind")
    given = {pair[0]: pair[1] for pair in pairs if len(pair) > 1}
    assert {given.pop("HOME"), given.pop("SERVING_DOWNLOAD_DIR")} == {"/cache", "/cache/models"}
    return service["command"], given, {one["target"]: output / one["source"] for one in binds}


def _in_systemd(output: Path, _: Path) -> Seen:
    (unit,) = output.glob("*.service")
    text = unit.read_text("utf-8").replace("%%", "%")
    (command,) = re.findall("^ExecStart=(.*)$", text, re.MULTILINE)
    quoted = re.findall('^Environment=(".*)$', text, re.MULTILINE)
    given = dict(json.loads(each).split("=", 1) for each in quoted)
    return shlex.split(command)[1:], given, {}


SEEN = {
    "kubernetes": _in_kubernetes,
    "helm": _in_helm,
    "compose": _in_compose,
    "systemd": _in_systemd,
}


def _plan(
    arguments: list[str], machine: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[str, int]:
    """Return the plan as `plan` prints it, and its exit status."""
    capsys.readouterr()
    status = main.main(["plan", "--json", *arguments, *machine])
    assert status in (0, UNREAD)
    return capsys.readouterr().out, status


@pytest.mark.parametrize("case", CASES)
def test_what_is_deployed_is_planned_as_before(
    case: str,
    hub: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, output, pod = (tmp_path / name for name in ("My_Model-3.1", "fleet", "pod"))
    shutil.copytree(GOLDEN / case, folder, ignore=shutil.ignore_patterns(*MADE))
    given = json.loads((GOLDEN / case / "env.json").read_text("utf-8"))
    read = json.loads((GOLDEN / case / "hardware.json").read_text("utf-8"))
    _fill(hub, folder, given)
    # Helm renders the chart in a process; tests/integration/test_chart.py holds it to Kubernetes.
    targets = [each for each in SEEN if each != "helm" or case in CASES[::4]]
    machine = [f"--gpus={read['gpus']}"]
    machine += [f"--gpu-memory={read['gpu_memory']}"] if "gpu_memory" in read else []
    with monkeypatch.context() as here:
        for name, value in given.items():
            here.setenv(name, value)
        before, status = _plan([str(folder)], machine, capsys)
        has_folders = any(path.is_dir() for path in folder.iterdir())
        claim = ["--model-claim=c"] if has_folders else []
        for target in targets:
            words = ["deploy", str(folder), "--to", target, "--output", str(output / target)]
            claimed = claim if target in OF_PODS else []
            assert main.main([*words, "--image=i", *machine, *claimed]) == status
    for target in targets:
        read_back = SEEN[target]
        (serve, place, *_), variables, mounts = read_back(output / target, folder)
        assert serve == "serve"
        assert Path(place).name == folder.name, "the model keeps its name"
        for mount, files in mounts.items():
            shutil.copytree(files, pod / target / mount.lstrip("/"))
        seen = pod / target / place.lstrip("/") if mounts else Path(place)
        with monkeypatch.context() as there:
            for name, value in variables.items():
                there.setenv(name, value)
            after = _plan([str(seen)], machine, capsys)[0].replace(str(seen), "F")
        assert json.loads(after) == json.loads(before.replace(str(folder), "F"))


@pytest.mark.parametrize("target", SEEN)
def test_variables_alone_are_a_model(
    target: str, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "HF_MODEL_ID": "org/m",
        "OPTION_ROLLING_BATCH": "echo",
        "OPTION_MAX_ROLLING_BATCH_SIZE": "7",
        "OPTION_CHAT_TEMPLATE": 'a $(b) ${c} $d 100% "é"',
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SERVING_MODEL_STORE", str(tmp_path / "none"))
    output = tmp_path / "fleet"
    assert main.main(["deploy", "--to", target, "--output", str(output), "--gpus=0"]) == 0
    (serve, word, *_), variables, mounts = SEEN[target](output, tmp_path)
    assert (serve, word[:2], mounts) == ("serve", "--", {})
    assert variables == given


def test_a_folder_that_names_the_place_of_its_weights_is_mounted_there(
    hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "Llama 3", tmp_path / "fleet"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.model_id=/opt/ml/model\n", "utf-8")
    machine = ["--gpus=1", "--gpu-memory=80GiB"]
    for word in ("check", "plan"):
        assert main.main([word, str(folder), *machine]) == 0
        shown = capsys.readouterr()
        assert "not known: /opt/ml/model is not here" in shown.out
        assert "it is served as Llama_3" in shown.err
    words = ["deploy", str(folder), "--to=kubernetes", f"--output={output}", "--model-claim=c"]
    assert main.main([*words, *machine]) == 0
    assert "it is served as Llama_3" in capsys.readouterr().err
    pod = yaml.safe_load((output / "needs.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    # The base mounts the claim's folder at /opt/ml/model, and a variable names the model.
    assert "volumeMounts" not in container
    assert container["args"][1].startswith("--")
    assert container["env"] == [{"name": "SERVING_LOAD_MODELS", "value": "Llama_3=/opt/ml/model"}]


def test_a_secret_variable_is_named_and_not_written(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    monkeypatch.setenv("OPTION_ENV", "MY_TOKEN=swordfish-1")
    words = ["deploy", str(folder), "--to=systemd", f"--output={tmp_path / 'out'}", "--gpus=0"]
    assert main.main(words) == 0
    assert "OPTION_ENV may be secret and is not written" in capsys.readouterr().err
    (unit,) = (tmp_path / "out").glob("*.service")
    assert "swordfish" not in unit.read_text("utf-8")


def test_a_unit_keeps_the_interpreter_and_the_devices_of_its_machine(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    monkeypatch.setenv("PYTHON_EXECUTABLE", sys.executable)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["deploy", str(folder), "--to=systemd", f"--output={tmp_path / 'out'}"]
    assert main.main(words) == 0
    _, variables, _ = _in_systemd(tmp_path / "out", folder)
    assert variables == {"PYTHON_EXECUTABLE": sys.executable}
