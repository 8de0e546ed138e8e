"""What SageMaker and Kubernetes ask of the image: `serve` alone, in a container that may do little.

The container contract of SageMaker: the argument `serve`, the model at /opt/ml/model, port 8080,
/ping and /invocations, SIGTERM, and an exit status that says whether it went well.
"""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.run.places import ROOT
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.container import container, why_not
from tests.support.servers.serving import write_properties

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
PROGRAM = str(Path(sys.executable).with_name("lmi-backend"))


@pytest.fixture(autouse=True)
def needs_namespaces() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def image() -> dict[str, str]:
    """The variables of the image that say where it listens."""
    found = dict(re.findall(r"\b(LMI_BACKEND_\w+)=(\S+)", DOCKERFILE))
    assert found == {"LMI_BACKEND_HOST": "0.0.0.0"}
    return found


def test_serve_alone_answers_as_sagemaker_asks(image: dict[str, str], tmp_path: Path) -> None:
    model = write_properties(tmp_path / "model", {"option.rolling_batch": "echo"})
    with container(model, image, [PROGRAM, "serve"], tmp_path / "log") as run:
        run.wait_for_ping()
        # The front end on every address, Triton for this machine only.
        sockets = Path(f"/proc/{run.inside}/net/tcp")
        assert "00000000:1F90 " in sockets.read_text("ascii")
        # Triton listens a moment after its models are loaded.
        wait_for(lambda: "0100007F:1F40 " in sockets.read_text("ascii"))
        body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}}
        assert run.ask("POST", "/invocations", body) == (200, {"generated_text": "a ba"})
        status = Path(f"/proc/{run.inside}/status").read_text("ascii")
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        os.kill(run.inside, signal.SIGTERM)
        assert run.process.wait(HANG_SECONDS) == 0, run.log.read_text("utf-8", "replace")
