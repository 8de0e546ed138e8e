"""What deploy/ has for Kubernetes: built by Kustomize, held against the schemas and our code."""

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli import main, serve
from lmi_backend.cli.arguments import Parser
from lmi_backend.cli.planning import UNREAD
from lmi_backend.deploy import served
from lmi_backend.engine_config import RequestLimits
from lmi_backend.fetch import download
from lmi_backend.front_end_settings import PORT
from lmi_backend.frontend.connection import ASK_SECONDS
from lmi_backend.plan.engine_plan import Launch
from lmi_backend.printable import GIB
from lmi_backend.supervisor.front_end import SILENT_SECONDS
from tests.support.records.manifests import OVERLAYS, built, check, container, option, pods
from tests.support.run.places import ROOT, TESTS

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
Fleets = dict[str, list[dict[str, Any]]]
LLAMA_405B = (TESTS / "golden" / "ladder_two_nodes" / "config.json").read_text("utf-8")


@pytest.fixture(scope="module")
def echo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lmi") / "My_Model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory, echo_folder: Path) -> Fleets:
    """Every folder that can be applied, and what it makes."""
    written = tmp_path_factory.mktemp("written")
    words = ["deploy", str(echo_folder), "--to", "kubernetes", "--gpus", "0", "--replicas", "3"]
    assert main.main([*words, "--output", str(written / "map")]) == 0
    words += ["--model-claim", "models"]
    assert main.main([*words, "--output", str(written / "claim")]) == 0
    words += ["--with", "monitor,keda,gateway,lora"]
    assert main.main([*words, "--output", str(written / "all")]) == 0
    found = {folder.name: built(folder) for folder in (*OVERLAYS.iterdir(), *written.iterdir())}
    assert sorted(found) == sorted(FLEETS)
    return found


FLEETS = ["multi-node", "kserve", "map", "claim", "all"]


@pytest.mark.parametrize("name", FLEETS)
def test_every_object_is_what_its_schema_wants(fleets: Fleets, name: str) -> None:
    assert fleets[name]
    for thing in fleets[name]:
        check(thing)


@pytest.mark.parametrize("name", FLEETS)
def test_a_pod_may_do_little(fleets: Fleets, name: str) -> None:
    for _, spec in pods(fleets[name]) if name != "kserve" else _runtime(fleets):
        own, of_pod = container(spec)["securityContext"], spec.get("securityContext", {})
        both = of_pod | own
        assert both["runAsNonRoot"] is True
        assert f"useradd --create-home --uid {both['runAsUser']} " in DOCKERFILE
        assert both["seccompProfile"] == {"type": "RuntimeDefault"}
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert "privileged" not in own


def _runtime(fleets: Fleets) -> list[tuple[dict[str, Any], Any]]:
    """A runtime of KServe's is the spec of a pod, but for its grace."""
    kinds = {thing["kind"]: thing["spec"] for thing in fleets["kserve"]}
    grace = kinds["InferenceService"]["predictor"]["terminationGracePeriodSeconds"]
    return [({}, kinds["ServingRuntime"] | {"terminationGracePeriodSeconds": grace})]


def _servers(fleets: Fleets, name: str) -> list[dict[str, Any]]:
    """The specs of pods that serve, not those that only hold ranks."""
    found = _runtime(fleets) if name == "kserve" else pods(fleets[name])
    return [spec for _, spec in found if container(spec)["args"][0] == "serve"]


@pytest.mark.parametrize("name", FLEETS)
def test_only_the_front_end_is_open(fleets: Fleets, name: str) -> None:
    for spec in _servers(fleets, name):
        own = container(spec)
        arguments = _serve_arguments(own["args"])
        assert arguments.host == "0.0.0.0"
        assert arguments.triton_host == "127.0.0.1"
        assert arguments.verbose, "the log of a pod is the only one"
        assert [port["containerPort"] for port in own["ports"]] == [arguments.port] == [PORT]
    for thing in fleets[name]:
        if thing["kind"] == "NetworkPolicy":
            first, *more = thing["spec"]["ingress"]
            assert first == {"ports": [{"port": "http"}]}
            assert [set(rule) for rule in more] == ([{"from"}] if name == "multi-node" else [])


def _serve_arguments(words: list[str]) -> argparse.Namespace:
    parser = Parser()
    serve.add_commands(parser.add_subparsers())
    return parser.parse_args(words)


@pytest.mark.parametrize("name", FLEETS)
def test_a_pod_that_ends_has_time_to_drain(fleets: Fleets, name: str) -> None:
    for spec in _servers(fleets, name):
        leaving = container(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = option(spec, "--drain-timeout")
        assert leaving == served.LEAVE_SECONDS
        assert drain == RequestLimits().request_timeout
        assert spec["terminationGracePeriodSeconds"] == leaving + drain + served.STOP_SECONDS


@pytest.mark.parametrize("name", FLEETS)
def test_probes_are_patient_enough(fleets: Fleets, name: str) -> None:
    for spec in _servers(fleets, name):
        own = container(spec)
        startup, ready, live = (
            own[f"{word}Probe"] for word in ("startup", "readiness", "liveness")
        )
        assert [probe["httpGet"]["path"] for probe in (startup, ready, live)] == [
            "/ping",
            "/ping",
            "/live",
        ]
        for probe in (startup, ready, live):
            assert probe["httpGet"]["port"] in ("http", PORT)
            assert probe["timeoutSeconds"] > ASK_SECONDS
        start = Launch(python="").load_timeout
        if name in ("multi-node", "kserve"):
            # Each of the repository may be given a model of the Hub.
            start += served.UNKNOWN_DOWNLOAD_SECONDS
        assert startup["periodSeconds"] * startup["failureThreshold"] >= start
        assert live["periodSeconds"] * live["failureThreshold"] > SILENT_SECONDS
        # A router must have left before requests are refused.
        assert ready["periodSeconds"] <= served.LEAVE_SECONDS


@pytest.mark.parametrize("name", FLEETS)
def test_shared_memory_is_sized_and_counted(fleets: Fleets, name: str) -> None:
    for spec in _servers(fleets, name):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in container(spec)["volumeMounts"]}
        shared = volumes[mounts["/dev/shm"]]["emptyDir"]
        assert shared["medium"] == "Memory"
        limit = container(spec)["resources"]["limits"]["memory"]
        assert GIB <= _bytes(shared["sizeLimit"]) < _bytes(limit)
        assert limit == container(spec)["resources"]["requests"]["memory"]


def _bytes(text: str) -> int:
    return int(text.removesuffix("Gi")) * GIB


@pytest.mark.parametrize("name", FLEETS)
def test_what_is_named_is_there(fleets: Fleets, name: str) -> None:
    maps = {one["metadata"]["name"] for one in fleets[name] if one["kind"] == "ConfigMap"}
    for _, spec in pods(fleets[name]):
        own = container(spec)
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in own["volumeMounts"]} == volumes.keys()
        named = {one["configMap"]["name"] for one in volumes.values() if "configMap" in one}
        assert named <= maps
        open_ports = {value for port in own.get("ports", ()) for value in port.values()}
        probes = [own[word] for word in own if word.endswith("Probe")]
        assert {probe["httpGet"]["port"] for probe in probes} <= open_ports


@pytest.mark.parametrize("name", sorted({*FLEETS} - {"kserve"}))
def test_selectors_find_the_pods(fleets: Fleets, name: str) -> None:
    """One that is empty would find every pod of the namespace."""
    labels = [metadata["labels"] for metadata, _ in pods(fleets[name])]
    if name == "multi-node":
        index = "leaderworkerset.sigs.k8s.io/worker-index"
        labels = [each | {index: str(number)} for number, each in enumerate(labels)]
    seen = 0
    for thing in fleets[name]:
        spec = thing.get("spec", {})
        found = spec.get("podSelector") or spec.get("selector")
        if found and thing["kind"] != "LeaderWorkerSet":
            wanted = found.get("matchLabels", found)
            assert wanted
            matched = [each for each in labels if wanted.items() <= each.items()]
            is_of_all = thing["kind"] in ("NetworkPolicy", "PodDisruptionBudget")
            assert len(matched) == (len(labels) if is_of_all else 1), thing["kind"]
            seen += 1
    assert seen == {"multi-node": 3, "all": 6}.get(name, 4)


def test_the_example_fits_the_devices_that_it_requests(
    fleets: Fleets,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As the group's variables have it.
    monkeypatch.setenv("DJL_CLUSTER_SIZE", "2")
    monkeypatch.setenv("DJL_LEADER_ADDR", "leader")
    folder = tmp_path / "example"
    shutil.copytree(OVERLAYS / "multi-node" / "model", folder)
    (folder / "config.json").write_text(LLAMA_405B, "utf-8")
    properties = folder / "serving.properties"
    text = re.sub(
        r"(?<=^option.model_id=).+$", str(folder), properties.read_text("utf-8"), flags=re.M
    )
    properties.write_text(text, "utf-8")
    machine = ["--gpus", "8", "--nodes", "2", "--gpu-memory", "80GiB"]
    assert main.main(["plan", str(folder), "--json", *machine]) == 0
    plan = json.loads(capsys.readouterr().out)
    (spec,) = _servers(fleets, "multi-node")
    devices = container(spec)["resources"]["limits"]["nvidia.com/gpu"]
    assert [len(group) for group in plan["device_groups"]] == [devices]
    assert plan["nodes"] == 2
    assert plan["memory"]["kv_cache"] > plan["memory"]["block_bytes"]
    assert plan["request_timeout"] == option(spec, "--drain-timeout")
    startup = container(spec)["startupProbe"]
    download = plan["memory"]["weights"] * devices * 2 / served.DOWNLOAD_RATE
    assert startup["periodSeconds"] * startup["failureThreshold"] > plan["load_timeout"] + download


def test_ranks_are_found_by_the_groups_variables(fleets: Fleets) -> None:
    """The names are LMI's; `join` finds its own number in LWS_WORKER_INDEX."""
    (group,) = (one for one in fleets["multi-node"] if one["kind"] == "LeaderWorkerSet")
    (spec,) = _servers(fleets, "multi-node")
    given = {one["name"]: one.get("value", "") for one in container(spec)["env"]}
    assert given["DJL_CLUSTER_SIZE"] == "$(LWS_GROUP_SIZE)"
    assert given["DJL_LEADER_ADDR"] == "$(LWS_LEADER_ADDRESS)"
    (joining,) = (spec for _, spec in pods([group]) if container(spec)["args"][0] == "join")
    assert container(joining)["env"] == container(spec)["env"]
    words = main.parser().parse_args(container(joining)["args"])
    assert words.node_rank is None
    # The group's headless Service has its name, and must be the only one of that name.
    assert group["metadata"]["name"] not in [
        one["metadata"]["name"] for one in fleets["multi-node"] if one["kind"] == "Service"
    ]


def test_metrics_that_scale_are_those_of_the_front_end(fleets: Fleets) -> None:
    (scaled,) = (one for one in fleets["all"] if one["kind"] == "ScaledObject")
    asked = {
        name
        for trigger in scaled["spec"]["triggers"]
        for name in re.findall(r"vllm:\w+", trigger["metadata"]["query"])
    }
    text = (ROOT / "lmi_backend" / "frontend" / "operators" / "metrics.py").read_text("utf-8")
    assert asked == {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
    assert all(f'"{name}"' in text for name in asked)


def test_what_is_written_with_a_model_joins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References in custom kinds, which Kustomize does not follow, name what is there."""
    folder, fleet = tmp_path / "My_Model", tmp_path / "fleet"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.model_id=org/m\n", "utf-8")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = ["--gpus=1", "--gpu-memory=80GiB", "--with=keda,gateway,lora,cache", "--namespace=n"]
    words += ["--service-account=reader"]
    deployed = ["deploy", str(folder), "--to=kubernetes", f"--output={fleet}", *words]
    assert main.main(deployed) == UNREAD, "written, though the model cannot be fetched"
    before, things = built(fleet / "download"), built(fleet)
    for thing in (*before, *things):
        check(thing)
        assert thing["metadata"]["namespace"] == "n"
    kinds = {one["kind"]: one for one in (*before, *things)}
    names = {kind: one["metadata"]["name"] for kind, one in kinds.items()}
    assert kinds["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == names["Deployment"]
    assert "replicas" not in kinds["Deployment"]["spec"]
    ((metadata, spec),) = pods([kinds["Deployment"]])
    for trigger in kinds["ScaledObject"]["spec"]["triggers"]:
        (pod,) = re.findall(r'namespace="n",pod=~"([^"]+)"', trigger["metadata"]["query"])
        assert re.fullmatch(pod, f"{names['Deployment']}-5d9c-abcde")
        assert re.fullmatch(pod, f"{names['Deployment']}-5d9ceabcde"), "one with a long name"
        assert not re.fullmatch(pod, f"{names['Deployment']}-2-5d9c-abcde"), "another model"
    route, pool = (kinds[kind]["spec"] for kind in ("HTTPRoute", "InferencePool"))
    assert route["parentRefs"] == [{"name": names["Gateway"]}]
    (backend,) = route["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("InferencePool", names["InferencePool"])
    assert pool["targetPorts"] == [{"number": PORT}]
    assert pool["selector"]["matchLabels"].items() <= metadata["labels"].items()
    ((_, downloading),) = pods([kinds["Job"]])
    for each in (spec, downloading):
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in each["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert claims["cache"] == names["PersistentVolumeClaim"]
        assert each["serviceAccountName"] == "reader"
    assert claims.keys() == {"cache"}
    command = container(downloading)["command"]
    assert command == ["python3", "-m", download.__spec__.name, "org/m", ""]
