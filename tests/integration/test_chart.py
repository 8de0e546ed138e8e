"""The Helm chart that `deploy` writes: linted and rendered by Helm, held against Kustomize."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from lmi_backend.cli import main
from lmi_backend.cli.planning import UNREAD
from tests.support.records.manifests import built, check, helm, rendered

MODEL = "my-model"
# A file that YAML must quote, and variables that Kubernetes, YAML and Helm could read.
FILES = {
    "serving.properties": "option.model_id=org/m\n# {{ .Values.x }}\n",
    "chat.jinja": "  {{ a }}: '\"\t\r\n\n# é ${b} $(c)\n\n",
}
VARIABLES = {"OPTION_CHAT_TEMPLATE": 'a: $(b) {{ c }} "é"\\', "AWS_REGION": "eu-1"}
MACHINE = ("--gpus=1", "--gpu-memory=80GiB")
WAYS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "claims": ("--model-claim=models", "--cache-claim=123", "--replicas=9"),
    "all": (
        "--with=monitor,keda,gateway,lora,cache",
        "--service-account=reader",
        "--image=registry:5000/a/b@sha256:0",
    ),
}
PODS = ["topology=zone", "nodeSelector.gpu=h100", "tolerations[0].key=nvidia.com/gpu"]
SWITCHES = [f"{name}.enabled=true" for name in ("podMonitor", "keda", "gateway", "lora", "cache")]


@pytest.fixture
def deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A folder with what two targets write: `helm` and `kubernetes`."""
    folder, output = tmp_path / MODEL, tmp_path / "out"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    for name, value in (VARIABLES | {"HF_HUB_OFFLINE": "1"}).items():
        monkeypatch.setenv(name, value)
    for target in ("helm", "kubernetes"):
        words = ["deploy", str(folder), "--to", target, f"--output={output / target}"]
        status = main.main([*words, *MACHINE, *WAYS[getattr(request, "param", "plain")]])
        assert status == UNREAD, "written, though the model cannot be fetched"
    return output


@pytest.mark.parametrize("deployed", WAYS, indirect=True)
def test_a_chart_makes_what_kustomize_makes(deployed: Path) -> None:
    chart, fleet = deployed / "helm", deployed / "kubernetes"
    done = helm("lint", "--strict", chart)
    assert done.returncode == 0, done.stdout
    before = built(fleet / "download") if (fleet / "download").exists() else []
    things = rendered(chart, MODEL)
    for thing in things:
        check(thing)
    assert _plain(things) == _plain([*before, *built(fleet)])


def _plain(things: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return objects without what only Helm or only Kustomize gives them."""
    text = re.sub(rf"(model-{MODEL})-[a-z0-9]{{10}}\b", r"\1", json.dumps(things))
    text = text.replace(r"namespace=\"default\",", "")
    found = {}
    for thing in json.loads(text):
        for of_tool in ("labels", "annotations"):
            thing["metadata"].pop(of_tool, None)
        pod = thing.get("spec", {}).get("template", {})
        pod.get("metadata", {}).pop("annotations", None)
        for each in pod.get("spec", {}).get("containers", ()):
            for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
                each[field].sort(key=lambda one, key=key: one[key])
        pod.get("spec", {}).get("volumes", []).sort(key=lambda one: one["name"])
        found[thing["kind"], thing["metadata"]["name"]] = thing
    assert len(found) == len(things)
    return found


def test_switches_of_the_values_are_the_words_of_with(deployed: Path) -> None:
    chart = deployed / "helm"
    more = [
        "--set",
        ",".join([*SWITCHES, *PODS, "cache.download=s3://b/m", "imagePullSecrets[0].name=p"]),
    ]
    before, things = rendered(chart, MODEL), rendered(chart, MODEL, *more)
    for thing in things:
        check(thing)
    (pod,) = (each["spec"]["template"]["spec"] for each in things if each["kind"] == "Deployment")
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "zone"
    assert pod["nodeSelector"] == {"gpu": "h100"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu"}]
    added = {each["kind"] for each in things} - {each["kind"] for each in before}
    extras = {"Gateway", "HTTPRoute", "InferencePool", "Job", "PersistentVolumeClaim"}
    assert added == {"PodMonitor", "ScaledObject", *extras}
    fewer = rendered(chart, MODEL, "--set", "networkPolicy.enabled=false")
    gone = {each["kind"] for each in before} - {each["kind"] for each in fewer}
    assert gone == {"NetworkPolicy"}


@pytest.mark.parametrize("deployed", ["all"], indirect=True)
def test_two_releases_share_a_namespace(deployed: Path) -> None:
    """No object has the other's name, and no selector the other's pods."""
    spread = ("--set", "topology=zone")
    releases = [rendered(deployed / "helm", name, *spread) for name in ("a.b", "123")]
    names = [{(each["kind"], each["metadata"]["name"]) for each in one} for one in releases]
    assert not names[0] & names[1]
    for name, things in zip(("a.b", "123"), releases, strict=True):
        selectors = [found for each in things for found in _selectors(each)]
        # Deployment and its spread, Service, PodMonitor, budget, NetworkPolicy and InferencePool.
        assert len(selectors) == 7
        (service,) = (each for each in things if each["kind"] == "Service")
        assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service["metadata"]["name"])
        for found in selectors:
            assert found["app.kubernetes.io/instance"] == name


def _selectors(node: Any) -> list[dict[str, str]]:
    if isinstance(node, list):
        return [found for each in node for found in _selectors(each)]
    if not isinstance(node, dict):
        return []
    found = [found for value in node.values() for found in _selectors(value)]
    for key in ("selector", "podSelector", "labelSelector"):
        if key in node:
            found.append(node[key].get("matchLabels", node[key]))
    return found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("replicas=two", "replicas: Invalid type"),
        ("replica=2", "Additional property replica is not allowed"),
        ("cache.enable=true", "cache: Additional property enable is not allowed"),
        ("keda.enabled=yes", "keda.enabled: Invalid type"),
        ("gpus=-1", "gpus: Must be greater than or equal to 0"),
        ("memory=18 GB", "memory: Does not match pattern"),
        ("image=a b", "image: Does not match pattern"),
        ("keda.kvCache=2", "keda.kvCache: Must be less than or equal to 1"),
        ("image=null", "image is required"),
        ("cache.size=null", "cache: size is required"),
        ("environment.A=1", "environment.A: Invalid type"),
    ],
)
def test_a_wrong_value_is_refused(deployed: Path, wrong: str, message: str) -> None:
    done = helm("template", "r", deployed / "helm", "--set", wrong)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize("right", ["cpus=2.5", "cpus=500m", "keda.kvCache=0.9", "model.claim=c"])
def test_a_value_is_used_as_it_is_given(deployed: Path, right: str, tmp_path: Path) -> None:
    """A file has numbers where --set has text."""
    names, _, value = right.partition("=")
    group, _, name = names.rpartition(".")
    inner = f"{name}: {value}\n"
    file = tmp_path / "more.yaml"
    file.write_text(f"{group}:\n  {inner}" if group else inner, "utf-8")
    switched = ("--set", "keda.enabled=true")
    by_file, by_word = (
        rendered(deployed / "helm", "r", *switched, *words)
        for words in (("--values", str(file)), ("--set", right))
    )
    assert by_file == by_word
    assert value in json.dumps(by_file)


def test_each_value_says_what_it_does(deployed: Path) -> None:
    lines = (deployed / "helm" / "values.yaml").read_text("utf-8").splitlines()
    values = yaml.safe_load("\n".join(lines))
    schema = json.loads((deployed / "helm" / "values.schema.json").read_text("utf-8"))
    assert schema["properties"].keys() - {"global"} == values.keys()
    for number, line in enumerate(lines):
        named = re.match(r" *(\w+): *\S", line)
        if named and named[1] not in VARIABLES:
            assert "#" in lines[number - 1], line


def test_the_notes_name_what_is_there(deployed: Path) -> None:
    chart = deployed / "helm"
    shown = 'notes: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}\n'
    (chart / "templates" / "shown.yaml").write_text(shown, "utf-8")
    things = rendered(chart, "r", "--namespace", "n")
    (notes,) = (each["notes"] for each in things if "notes" in each)
    (line,) = (line for line in notes.splitlines() if "curl" in line)
    words = shlex.split(line)
    assert json.loads(words[-1])["model"] == MODEL
    names = {(each["kind"], each["metadata"]["name"]) for each in things if "metadata" in each}
    named = re.findall(r"(deployment|service)/(\S+)", notes)
    assert {(kind.capitalize(), name) for kind, name in named} < names
    assert notes.count("--namespace n ") == notes.count("kubectl ") == 3
