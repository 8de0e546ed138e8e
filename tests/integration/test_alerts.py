"""What is given to operators: alerts that Prometheus reads, a dashboard of metrics that exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from debian_package import PackageError, unpacked

from lmi_backend.frontend.metrics import FAMILIES as FRONT_END
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
