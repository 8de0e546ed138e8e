"""What `deploy` writes for one machine; there is no Docker here."""

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
from tests.support.records.manifests import check_compose

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


@pytest.fixture
def echo_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "My_Model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=echo\n", "utf-8")
    return folder


def _deployed(folder: Path, to: str, gpus: int) -> Path:
    output = folder.parent / "out"
    words = ["deploy", str(folder), "--to", to, "--output", str(output), "--gpus", str(gpus)]
    assert main.main(words) == 0
    (path,) = {*output.iterdir()} - {*output.glob("prometheus*")}
    return path


@pytest.fixture
def service(echo_folder: Path) -> dict[str, Any]:
    whole = yaml.safe_load(_deployed(echo_folder, "compose", 0).read_text("utf-8"))
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


def test_its_image_is_a_stage_that_exists(service: dict[str, Any]) -> None:
    _, _, target = service["image"].partition("lmi-backend:")
    assert re.search(rf" AS {target}$", DOCKERFILE, re.MULTILINE)


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
    assert (volume["target"], volume["read_only"]) == ("/opt/ml/model/My_Model", True)


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
    load = served.Needs().load_seconds
    # The image may be given a model of the Hub.
    assert _seconds(start) == load + served.UNKNOWN_DOWNLOAD_SECONDS
    assert _seconds(check["start_period"]) == load


def test_a_stop_leaves_time_to_drain(service: dict[str, Any]) -> None:
    (drain,) = re.findall(r"--drain-timeout=(\d+)", " ".join(service["command"]))
    assert int(drain) == RequestLimits().request_timeout
    assert _seconds(service["stop_grace_period"]) == int(drain) + served.STOP_SECONDS
    # What ends its processes one after the other; the front end has as long as 10 s.
    assert served.STOP_SECONDS >= 3 * EXIT_SECONDS + 10


def test_compose_takes_gpus_and_no_wrong_member(echo_folder: Path) -> None:
    whole = yaml.safe_load(_deployed(echo_folder, "compose", 2).read_text("utf-8"))
    check_compose(whole)
    (service,) = whole["services"].values()
    assert service["command"][:2] == ["serve", "/opt/ml/model/My_Model"]
    with pytest.raises(jsonschema.ValidationError):
        check_compose({"services": {"a": {"image": "b", "misspelt": 1}}})


def _verify(unit: Path) -> tuple[int, str]:
    words = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_systemd_takes_what_is_written(echo_folder: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze: apt-get install systemd")
    unit = _deployed(echo_folder, "systemd", 0)
    assert _verify(unit) == (0, "")
    unit.write_text(unit.read_text("utf-8").replace("KillMode=mixed", "KillMode=mixt"), "utf-8")
    assert "kill mode" in _verify(unit)[1]
