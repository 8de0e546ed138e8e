"""The values of deploy/compose.yaml, as a YAML parser reads them; there is no Docker here."""

import argparse
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli import serve

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
# PyYAML is in the engine's environment only.
ENGINE = os.environ.get("PYTHON_EXECUTABLE") or str(ROOT / ".venv-engine" / "bin" / "python")


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    code = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
    text = (ROOT / "deploy" / "compose.yaml").read_text("utf-8")
    done = subprocess.run(
        [ENGINE, "-c", code], input=text, capture_output=True, check=True, text=True
    )
    (only,) = json.loads(done.stdout)["services"].values()
    return only


def _seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)([sm])", text).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60}[unit]


def test_the_container_may_do_little(service: dict[str, Any]) -> None:
    assert service["user"] == "1001"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "network_mode", "pid", "ipc"} & set(service)


def test_the_user_is_the_images(service: dict[str, Any]) -> None:
    assert f"useradd --create-home --uid {service['user']} " in DOCKERFILE


def test_it_builds_a_stage_that_exists(service: dict[str, Any]) -> None:
    build = service["build"]
    assert re.search(rf" AS {build['target']}$", DOCKERFILE, re.MULTILINE)
    assert (ROOT / "deploy" / build["context"] / "Dockerfile").is_file()
    assert service["image"] == f"lmi-backend:{build['target']}"


def test_its_ports_are_published_on_this_machine_only(service: dict[str, Any]) -> None:
    (exposed,) = set(re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE))
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in exposed.split()]


def test_the_model_cannot_be_written(service: dict[str, Any]) -> None:
    assert [volume.rpartition("}:")[2] for volume in service["volumes"]] == ["/opt/ml/model:ro"]


def test_shared_memory_is_what_the_dockerfile_says(service: dict[str, Any]) -> None:
    assert set(re.findall(r"--shm-size=(\S+)", DOCKERFILE)) == {"2g"}
    assert service["shm_size"] == "2gb"


def test_it_asks_the_models_as_the_image_does(service: dict[str, Any]) -> None:
    check = service["healthcheck"]
    (options, words) = re.findall(r"^HEALTHCHECK (.+) \\\n +CMD (.+)$", DOCKERFILE, re.MULTILINE)[0]
    assert check["test"] == ["CMD", *json.loads(words)]
    for name in ("interval", "timeout", "start_period"):
        assert f"--{name.replace('_', '-')}={check[name]}" in options.split()


def test_a_stop_leaves_time_to_drain(service: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser()
    serve.add_commands(parser.add_subparsers())
    drain = parser.parse_args(["serve"]).drain_timeout
    assert drain > 0
    assert _seconds(service["stop_grace_period"]) >= drain + 15
