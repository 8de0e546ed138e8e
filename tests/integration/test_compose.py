"""deploy/compose.yaml and what `deploy` writes for one machine; there is no Docker here."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lmi_backend.cli import main
from lmi_backend.deploy import served
from lmi_backend.engine_config import RequestLimits
from lmi_backend.front_end_settings import PORT
from lmi_backend.supervisor.server import EXIT_SECONDS
from tests.support.manifests import check_compose

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    whole = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
    check_compose(whole)
    (only,) = whole["services"].values()
    return only


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def test_the_container_may_do_little(service: dict[str, Any]) -> None:
    assert service["user"] == "1001"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & set(service)
    assert f"useradd --create-home --uid {service['user']} " in DOCKERFILE


def test_it_builds_a_stage_that_exists(service: dict[str, Any]) -> None:
    build = service["build"]
    assert re.search(rf" AS {build['target']}$", DOCKERFILE, re.MULTILINE)
    assert (ROOT / "deploy" / build["context"] / "Dockerfile").is_file()
    assert service["image"] == f"lmi-backend:{build['target']}"


def test_its_ports_are_published_on_this_machine_only(service: dict[str, Any]) -> None:
    (exposed,) = set(re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE))
    assert str(PORT) in exposed.split()
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert f"--port={PORT}" in service["command"]


def test_the_model_cannot_be_written(service: dict[str, Any]) -> None:
    cache, volume = service["volumes"]
    assert (cache["type"], cache["target"]) == ("volume", "/cache")
    # A new volume takes the owner of the image's folder.
    assert len(re.findall(r"install -d -o lmi -g lmi .* /cache$", DOCKERFILE, re.MULTILINE)) == 3
    assert (volume["target"], volume["read_only"]) == ("/opt/ml/model/model", True)


def test_shared_memory_is_what_the_dockerfile_says(service: dict[str, Any]) -> None:
    assert set(re.findall(r"--shm-size=(\S+)", DOCKERFILE)) == {"2g"}
    assert service["shm_size"] == "2gb"
    assert served.Needs().shared_memory == 2 << 30


def test_it_asks_the_models_as_the_image_does(service: dict[str, Any]) -> None:
    check = service["healthcheck"]
    (options, words) = re.findall(r"^HEALTHCHECK (.+) \\\n +CMD (.+)$", DOCKERFILE, re.MULTILINE)[0]
    assert check["test"] == ["CMD", *json.loads(words)]
    for name in ("interval", "timeout"):
        assert f"--{name}={check[name]}" in options.split()
    (start,) = re.findall(r"--start-period=(\S+)", options)
    download = served.UNKNOWN_DOWNLOAD_SECONDS
    seconds = served.Needs().load_seconds + download
    assert _seconds(check["start_period"]) == _seconds(start) == seconds


def test_a_stop_leaves_time_to_drain(service: dict[str, Any]) -> None:
    (drain,) = re.findall(r"--drain-timeout=(\d+)", " ".join(service["command"]))
    assert int(drain) == RequestLimits().request_timeout
    assert _seconds(service["stop_grace_period"]) == int(drain) + served.STOP_SECONDS
    # What ends its processes one after the other; the front end has as long as 10 s.
    assert served.STOP_SECONDS >= 3 * EXIT_SECONDS + 10


@pytest.fixture
def echo_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "My_Model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    return folder


def test_compose_takes_what_is_written(echo_folder: Path, tmp_path: Path) -> None:
    words = ["deploy", str(echo_folder), "--to", "compose", "--output", str(tmp_path / "out")]
    assert main.main([*words, "--gpus", "2"]) == 0
    for path in (ROOT / "deploy" / "compose.yaml", tmp_path / "out" / "compose.yaml"):
        check_compose(yaml.safe_load(path.read_text("utf-8")))
    (service,) = yaml.safe_load((tmp_path / "out" / "compose.yaml").read_text("utf-8"))[
        "services"
    ].values()
    assert service["command"][:2] == ["serve", "/opt/ml/model/My_Model"]
    with pytest.raises(jsonschema.ValidationError):
        check_compose({"services": {"a": {"image": "b", "misspelt": 1}}})


def _verify(unit: Path) -> tuple[int, str]:
    words = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_systemd_takes_what_is_written(echo_folder: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze: apt-get install systemd")
    words = ["deploy", str(echo_folder), "--to", "systemd", "--output", str(tmp_path / "out")]
    assert main.main([*words, "--gpus", "0"]) == 0
    (unit,) = (tmp_path / "out").iterdir()
    assert _verify(unit) == (0, "")
    unit.write_text(unit.read_text("utf-8").replace("KillMode=mixed", "KillMode=mixt"), "utf-8")
    assert "kill mode" in _verify(unit)[1]
