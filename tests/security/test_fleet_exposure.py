"""A tritonserver that others start: what it leaves open is said, and what can be closed is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_backend.options import load_options
from lmi_backend.repository.restricted_apis import NOT_FOR_CLIENTS, Restriction, exposures
from lmi_backend.repository.writer import write_model
from tests.support.attackers import ECHO
from tests.support.processes import shared_memory
from tests.support.serving import tritonserver, write_properties

ROOT = Path(__file__).resolve().parents[2]
PLAIN = ["tritonserver", "--model-repository=/models"]
EXPLICIT = [*PLAIN, "--model-control-mode", "explicit"]
CLOSED = Restriction(tuple(NOT_FOR_CLIENTS), "key").arguments()
DEFAULT_OPEN = {"logging", "shared-memory", "trace"}


def _open(arguments: list[str], release: str = "") -> dict[str, set[str]]:
    """Return what is said to be open, by protocol."""
    environment = {"NVIDIA_TRITON_SERVER_VERSION": release} if release else {}
    found: dict[str, set[str]] = {"HTTP": set(), "gRPC": set()}
    for sentence in exposures(arguments, environment):
        if match := re.match(r"(.+): open over (HTTP|gRPC) ", sentence):
            found[match[2]] |= set(match[1].split(", "))
    return found


def test_a_plain_server_cannot_load_but_much_else() -> None:
    assert _open(PLAIN) == {"HTTP": DEFAULT_OPEN, "gRPC": DEFAULT_OPEN}


def test_one_that_loads_by_api_runs_clients_code() -> None:
    everything = set(NOT_FOR_CLIENTS)
    assert _open(EXPLICIT) == {"HTTP": everything, "gRPC": everything}
    assert _open([*PLAIN, "--model-control-mode=explicit"])["HTTP"] == everything


def test_what_serve_passes_leaves_nothing() -> None:
    assert not list(exposures([*EXPLICIT, *CLOSED], {}))


def test_each_protocol_is_looked_at_by_itself() -> None:
    http, grpc = CLOSED
    assert _open([*EXPLICIT, http]) == {"HTTP": set(), "gRPC": set(NOT_FOR_CLIENTS)}
    assert not _open([*EXPLICIT, *grpc.split("=", 1), "--allow-http=false"])["HTTP"]


def test_a_protocol_that_is_off_is_closed() -> None:
    assert _open([*EXPLICIT, "--allow-grpc", "False"])["gRPC"] == set()


def test_newer_releases_keep_clients_memory_off() -> None:
    assert _open(PLAIN, "26.07")["HTTP"] == DEFAULT_OPEN - {"shared-memory"}
    assert _open([*PLAIN, "--allow-client-shm=true"], "26.07")["HTTP"] == DEFAULT_OPEN


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--allow-sagemaker=true"], {}),
        (["--allow-vertex-ai", "true"], {}),
        ([], {"AIP_MODE": "PREDICTION"}),
        (["--allow-sagemaker=1"], {"NVIDIA_TRITON_SERVER_VERSION": "26.02"}),
    ],
)
def test_a_port_that_goes_around_restrictions_is_named(
    arguments: list[str], environment: dict[str, str]
) -> None:
    (sentence,) = exposures([*PLAIN, *CLOSED, *arguments], environment)
    assert "a way around restricted APIs before release 26.03" in sentence
    assert not list(
        exposures(
            [*PLAIN, *CLOSED, *arguments], environment | {"NVIDIA_TRITON_SERVER_VERSION": "26.03"}
        )
    )


def test_the_arguments_in_deploy_are_these() -> None:
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    for argument in Restriction(tuple(NOT_FOR_CLIENTS), "$KEY").arguments():
        assert argument in text


def test_the_stub_warns_and_closes_its_memory(
    tmp_path: Path, as_another_user: Callable[..., str]
) -> None:
    folder, repository = write_properties(tmp_path / "echo", ECHO), tmp_path / "models"
    write_model(folder, repository, "echo", load_options(folder, {}))
    with tritonserver(repository, tmp_path) as served:
        assert served.is_ready("echo")
        (name,) = shared_memory(served.family(), "triton")
        text = "import os, sys\nprint(os.access(sys.argv[1], os.R_OK))"
        assert as_another_user(text, name) == "False\n"
    (warning,) = (line for line in served.log().splitlines() if "open over" in line)
    for part in ("echo: shared-memory, logging, trace: open over HTTP", "gRPC", "deploy/README.md"):
        assert part in warning
