"""What is given to operators: alerts that Prometheus reads, a dashboard of metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from debian_package import PackageError, unpacked

from lmi_backend.cli.main import main
from lmi_backend.frontend.operators.metrics import FAMILIES as FRONT_END
from lmi_backend.serving.metrics import FAMILIES, series_names

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SERIES = {name for family in FAMILIES for name in series_names(family)} | {*FRONT_END}


@pytest.fixture(scope="module")
def promtool() -> str:
    if found := shutil.which("promtool"):
        return found
    try:
        return str(unpacked("prometheus", ROOT / ".cache" / "debian") / "usr" / "bin" / "promtool")
    except PackageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "words",
    [["check", "rules", "prometheus-alerts.yml"], ["test", "rules", "prometheus-alerts-test.yml"]],
)
def test_prometheus_reads_the_alerts_and_they_fire(promtool: str, words: list[str]) -> None:
    done = subprocess.run(
        [promtool, *words], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("target", ["compose", "kubernetes"])
def test_prometheus_reads_what_deploy_writes(promtool: str, tmp_path: Path, target: str) -> None:
    echo, output = tmp_path / "echo", tmp_path / "output"
    echo.mkdir()
    (echo / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    assert main(["deploy", str(echo), f"--to={target}", "--gpus=0", f"--output={output}"]) == 0
    jobs = output / "prometheus.yml"
    # Debian's is built without Kubernetes.
    text = jobs.read_text("utf-8").replace(
        "kubernetes_sd_configs:\n      - role: pod", "scheme: http"
    )
    jobs.write_text(text, "utf-8")
    done = subprocess.run([promtool, "check", "config", jobs], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "name", ["prometheus-alerts.yml", "grafana-dashboard.json", "grafana-fleet.json"]
)
def test_only_metrics_that_exist_are_asked_for(name: str) -> None:
    named = set(re.findall(r"\blmi_\w+", (DEPLOY / name).read_text(encoding="utf-8")))
    assert named
    assert named <= SERIES


def test_the_dashboard_shows_every_metric() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = " ".join(t["expr"] for panel in board["panels"] for t in panel["targets"])
    missing = [family for family in (*FAMILIES, *FRONT_END) if family not in asked]
    assert not missing


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    text = (DEPLOY / "prometheus-alerts.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", text)
    links = re.findall(r"runbook_url: docs/troubleshooting.md#(\w+)", text)
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert links == [name.lower() for name in alerts]
    assert re.findall(r"^### (Lmi\w+)$", page, re.MULTILINE) == alerts


@pytest.mark.parametrize("name", ["grafana-dashboard.json", "grafana-fleet.json"])
def test_each_series_of_a_board_is_limited_to_what_is_chosen(name: str) -> None:
    board = json.loads((DEPLOY / name).read_text(encoding="utf-8"))
    variables = [each["name"] for each in board["templating"]["list"]]
    assert variables == ["source", "namespace", "pod", "model"]
    wanted = 'namespace=~"$namespace",pod=~"$pod",model=~"$model"}'
    for panel in board["panels"]:
        assert panel["description"]
        for target in panel["targets"]:
            series = re.findall(r"\b(?:lmi_|vllm:)\w+", target["expr"])
            assert target["expr"].count(wanted) == len(series) > 0


@pytest.mark.parametrize(
    "name", ["prometheus-alerts.yml", "grafana-dashboard.json", "grafana-fleet.json"]
)
def test_models_of_one_name_are_told_apart_by_namespace(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    grouped = [each for each in re.findall(r" by \(([^)]*)\)", text) if "model" in each]
    assert grouped or name == "grafana-fleet.json"
    assert all(each.startswith("namespace, model") for each in grouped)
    legends = [each for each in re.findall(r'"legendFormat": "(.*)"', text) if "{{model}}" in each]
    assert all(each.startswith("{{namespace}} {{model}}") for each in legends)
