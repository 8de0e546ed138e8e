"""What of the Dockerfile can be known without building it; `make lint` runs hadolint."""

import json
import re

import pytest
import tomllib

from lmi_backend.cli import serve
from lmi_backend.cli.arguments import Parser
from lmi_backend.supervisor.installation import OLDEST_FOR_FLEETS
from tests.support.run.places import ROOT

WRITTEN = (ROOT / "Dockerfile").read_text("utf-8")
SECURITY = (ROOT / "docs" / "security.md").read_text("utf-8")
TEXT = WRITTEN.replace("\\\n", " ")
HEAD = re.sub(r"^# *", "", WRITTEN.partition("\nARG ")[0], flags=re.MULTILINE)
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
    # Asks the models: Triton's own /v2/health/ready continues to be 200 without any.
    (words,) = re.findall(r"^HEALTHCHECK .+ CMD (\[.+\])$", text, re.MULTILINE)
    assert json.loads(words) == ["lmi-backend", "health"]


@pytest.mark.parametrize("stage", ["vllm", "trtllm"])
def test_nvidias_image_is_of_a_release_without_known_vulnerabilities(stage: str) -> None:
    argument = f"{stage.upper()}_TRITON"
    assert f"FROM ${{{argument}}} AS {stage}" in TEXT.splitlines()
    image = rf"nvcr.io/nvidia/tritonserver:(.+)-{stage}-python-py3"
    (release,) = re.findall(rf"^ARG {argument}={image}$", TEXT, re.MULTILINE)
    assert release >= OLDEST_FOR_FLEETS


def test_the_images_have_what_the_front_end_needs_as_it_was_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [project["optional-dependencies"][name] for name in ("client", "frontend", "s3")]
    image, server = (
        dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text("utf-8"), re.MULTILINE))
        for lock in ("requirements/image.txt", "requirements/server.txt")
    )
    assert image.items() < server.items()
    wanted = {re.split(r"[\[>=]", each)[0] for each in sum(extras, project["dependencies"])}
    assert wanted <= {name.replace(".", "-") for name in image}


@pytest.mark.parametrize("stage", STAGES)
def test_it_is_shown_how_to_run_it_with_enough_shared_memory(stage: str) -> None:
    shown = re.findall(r"^docker run .+$", HEAD.replace("\\\n", ""), re.MULTILINE)
    (example,) = (line for line in shown if line.endswith(f" lmi-backend:{stage}"))
    assert "--shm-size=2g " in example
    assert "-p 127.0.0.1:8080:8080 " in example
    assert ":/opt/ml/model:ro " in example


@pytest.mark.parametrize("stage", STAGES)
def test_the_command_is_one_of_ours(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = re.findall(r"\bLMI_BACKEND_HOST=(\S+)", STAGES[stage])
    monkeypatch.setenv("LMI_BACKEND_HOST", host)
    assert 'ENTRYPOINT ["lmi-backend"]' in STAGES[stage]
    (words,) = re.findall(r"^CMD (.+)$", STAGES[stage], re.MULTILINE)
    parser = Parser()
    serve.add_commands(parser.add_subparsers())
    # SageMaker gives the first word alone.
    for given in (json.loads(words), ["serve"]):
        assert parser.parse_args(given).host == "0.0.0.0"
        # Says docs/security.md, whose first lines name what clients may reach.
        assert "Leave Triton's own ports on 127.0.0.1, where they are by default" in SECURITY
        assert parser.parse_args(given).triton_host == "127.0.0.1"
    published = re.findall(r"^EXPOSE (.+)$", STAGES[stage], re.MULTILINE)
    assert published == re.findall(r"the front end only \(port (\d+)\)", SECURITY)


def test_the_cpu_image_has_what_ci_installs_for_the_engine() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    (packages,) = re.findall(r"^for package in (.+); do$", script, re.MULTILINE)
    tests = {"chromium", "iproute2", "libb64-0d", "openssh-server", "openssl"}
    # The image has an interpreter of its own.
    interpreter = {"python3-venv", "libpython3.11"}
    assert not {p for p in set(packages.split()) - tests - interpreter if p not in STAGES["cpu"]}
    assert "RUN make install model" in STAGES["cpu"]
