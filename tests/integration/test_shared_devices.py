"""Several models of one server on GPUs that are made up: who loads where, for real."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.plan.multi_model import Reservations
from lmi_backend.supervisor.processes import lives, stubs_of
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, lmi, serve, write_properties

TOOL = """\
#!/bin/sh
case "$1" in
--query-gpu=uuid,name,memory.total,memory.reserved,compute_cap,driver_version,*)
  for gpu in 0 1 2; do echo "GPU-$gpu, NVIDIA L40S, 46068, 600, 8.9, 550.54, [N/A]"; done;;
*) exit 2;;
esac
"""
# An engine that computes nothing, and takes as much of a GPU as it says.
WHOLE = {"option.rolling_batch": "echo", "gpu.required_memory_mb": "45000"}
HALF = WHOLE | {"gpu.required_memory_mb": "20000"}


@pytest.fixture(scope="module", autouse=True)
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A machine with three GPUs, whose temporary files are its own."""
    tool = tmp_path_factory.mktemp("bin") / "nvidia-smi"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield tool


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    properties = {
        "open": WHOLE | {"option.tensor_parallel_degree": "1"},
        "first": WHOLE | {"load_on_devices": "0", "option.tensor_parallel_degree": "1"},
        "half": HALF | {"load_on_devices": "2", "option.tensor_parallel_degree": "1"},
        "other": HALF | {"load_on_devices": "2", "option.tensor_parallel_degree": "1"},
        "late": WHOLE | {"maxWorkers": "1", "option.tensor_parallel_degree": "1"},
    }
    return {name: write_properties(folder / name, lines) for name, lines in properties.items()}


def masks(served: Served, model: str) -> list[str]:
    return sorted(each.environ()["CUDA_VISIBLE_DEVICES"] for each in served.workers(model))


def test_what_does_not_fit_together_is_said_before_anything_is_loaded(
    models: dict[str, Path],
) -> None:
    refused = lmi("serve", models["half"], models["late"], models["first"], models["open"])
    assert refused.returncode
    problem = "open: no device of 3 has enough memory left; "
    assert problem in refused.stderr
    for holder in ("model first holds 99%", "model half holds 44%", "model late holds 99%"):
        assert holder in refused.stderr
    done = lmi("doctor", models["first"], models["late"], models["open"])
    assert "model late" not in done.stdout
    (error,) = (
        each
        for each in json.loads(lmi("doctor", Path("--json"), *[models["first"]] * 2).stdout)
        if each["status"] == "error"
    )
    assert error["found"].startswith("2 models are named first")


def test_models_load_beside_each_other_and_again(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        _check_a_server(models, tmp_path, Path(folder))


def _check_a_server(models: dict[str, Path], tmp_path: Path, temporary: Path) -> None:
    repository = tmp_path / "models"
    folders = [models[name] for name in ("open", "first", "half", "other")]
    options = (
        "--model-repository",
        str(repository),
        "--control-key",
        str(tmp_path / "control.key"),
    )
    with serve(folders, tmp_path, *options, "--no-frontend") as served:
        assert "open: 1 worker(s) on GPU 1, 99% of each" in served.greeting
        # The two that say which device they want have it, and so have those that share one.
        assert masks(served, "first") == ["0"]
        assert masks(served, "half") == masks(served, "other") == ["2"]
        assert masks(served, "open") == ["1"]
        held = {each.model: dict(each.shares) for each in Reservations("", temporary).held()}
        assert held.keys() == {"open", "first", "half", "other"}
        assert held["open"] == {"GPU-1": pytest.approx(0.99, abs=0.01)}
        # Another server of this user sees it.
        refused = lmi("serve", models["late"])
        assert "model open holds 99% of GPU 1" in refused.stderr
        # A new load of the same model is not refused for its own devices.
        (old,) = served.workers("open")
        (repository / "open" / "serving.properties").touch()
        status, answer = served.control("open/load")
        assert status == 200, answer
        wait_for(lambda: not lives(old))
        assert masks(served, "open") == ["1"]
        _check_the_dead(served, temporary)


def _check_the_dead(served: Served, folder: Path) -> None:
    """What an unloaded model held is free, and what a killed one did too."""
    assert served.control("first/unload")[0] == 200
    held = lambda: {each.model for each in Reservations("", folder).held()}  # noqa: E731
    wait_for(lambda: "first" not in held())
    (server,) = served.named("tritonserver")
    kept = served.workers("other") + served.workers("half")
    stubs_of(server.pid)["other"].kill()
    wait_for(lambda: "other" not in held())
    # The server is started again, and all have what they had.
    wait_for(lambda: held() == {"open", "first", "half", "other"})
    wait_for(lambda: _all_ready(served))
    # With their workers, which the next stubs have adopted.
    assert served.workers("other") + served.workers("half") == kept
    assert masks(served, "other") == ["2"]


def _all_ready(served: Served) -> bool:
    with contextlib.suppress(OSError):
        return all(served.is_ready(name) for name in ("open", "first", "half", "other"))
    return False
