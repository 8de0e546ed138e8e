"""What of the Dockerfile can be known without building it; `make lint` runs hadolint."""

import argparse
import json
import re
from pathlib import Path

import pytest

from lmi_backend.cli import serve

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
STAGES = dict(re.findall(r"^FROM .+? AS (\w+)\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def test_the_stages_are_those_the_head_names() -> None:
    assert list(STAGES) == ["cpu", "vllm", "trtllm"]
    assert all(f"--target {stage}" in TEXT for stage in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_copied_exists_and_is_not_ignored(stage: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for words in re.findall(r"^COPY (.+)$", STAGES[stage], re.MULTILINE):
        sources = [word for word in words.split() if not word.startswith("--")][:-1]
        assert sources
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source not in ignored


@pytest.mark.parametrize("stage", STAGES)
def test_it_runs_as_nobody_special_drains_and_is_watched(stage: str) -> None:
    text = STAGES[stage]
    assert re.findall(r"^USER (\w+)$", text, re.MULTILINE)[-1] == "1001"
    assert "STOPSIGNAL SIGTERM" in text
    assert "/v2/health/ready" in text


@pytest.mark.parametrize("stage", STAGES)
def test_the_command_is_one_of_ours(stage: str) -> None:
    assert 'ENTRYPOINT ["lmi-backend"]' in STAGES[stage]
    (words,) = re.findall(r"^CMD (.+)$", STAGES[stage], re.MULTILINE)
    parser = argparse.ArgumentParser()
    serve.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(json.loads(words))
    assert parsed.host == "0.0.0.0"


def test_the_cpu_image_has_what_ci_installs_for_the_engine() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    (packages,) = re.findall(r"^for package in (.+); do$", script, re.MULTILINE)
    tests_only = {"iproute2", "openssh-server"}
    assert not {p for p in set(packages.split()) - tests_only if p not in STAGES["cpu"]}
    assert "RUN make install model" in STAGES["cpu"]
