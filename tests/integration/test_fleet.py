"""An existing fleet: plain `tritonserver --model-repository`, without `lmi-backend serve`."""

import contextlib
import http.client
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import tritonclient.http

from lmi_backend.options import load_options
from lmi_backend.repository.variants import VARIANTS, Alias
from lmi_backend.repository.writer import MODEL_PY, write_alias_model, write_model
from tests.support.run.processes import shared_memory
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import (
    Served,
    answer_of,
    front_end,
    lmi,
    tritonserver,
    write_properties,
)

ECHO = {"option.rolling_batch": "echo", "option.token_seconds": 0.01}
ROOT = Path(__file__).resolve().parents[2]


STARTS = 4
"""Of a server that may abort when one of its stubs is killed: see `test_a_dead_stub_...`."""
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


BY_HAND = """
backend: "python" max_batch_size: 0 dynamic_batching { }
instance_group [{ kind: KIND_CPU, count: 1 }] version_policy { specific { versions: [1] } }
model_transaction_policy { decoupled: true } metric_tags { key: "team" value: "a" }
input [{ name: "text_input" data_type: TYPE_STRING dims: [1] optional: true }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [-1] }]
parameters { key: "team" value { string_value: "a" } }
optimization { input_pinned_memory { enable: false } }
"""
BATCHES = """
backend: "python" max_batch_size: 8 model_transaction_policy { decoupled: false }
input [{ name: "prompt" data_type: TYPE_STRING dims: [1] }] sequence_batching { }
instance_group [{ kind: KIND_CPU, count: 1, passive: true }]
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fleet")
    models = folder / "models"
    for name in ("bare", "backend", "by_hand", "copies", "bad", "batches"):
        properties: dict[str, Any] = ECHO | ({"option.x": 1} if name == "bad" else {})
        (write_properties(models / name, properties) / "1").mkdir()
    for name in ("bare", "by_hand", "copies", "bad", "batches"):
        (models / name / "1" / "model.py").write_text(MODEL_PY, encoding="utf-8")
    (models / "backend" / "config.pbtxt").write_text('backend: "lmi"\n', encoding="utf-8")
    copies = 'backend: "python"\ninstance_group [{ kind: KIND_CPU, count: 2 }]\n'
    (models / "copies" / "config.pbtxt").write_text(copies, encoding="utf-8")
    (models / "by_hand" / "config.pbtxt").write_text(BY_HAND, encoding="utf-8")
    (models / "batches" / "config.pbtxt").write_text(BATCHES, encoding="utf-8")
    shutil.copytree(ROOT / "model_repository" / "lmi_echo", models / "lmi_echo")
    options = load_options(models / "lmi_echo", {})
    write_alias_model(models, "lmi_echo", Alias(VARIANTS["raw"]), options)
    _convert_and_move(folder, models)
    with tritonserver(models, folder, *EXPLICIT) as served:
        yield served


def _convert_and_move(folder: Path, models: Path) -> None:
    """Put a converted model into a repository in another place."""
    source = folder / "source"
    (source / "inside").mkdir(parents=True)
    (source / "inside" / "template.jinja").write_text("{{ messages }}", encoding="utf-8")
    write_properties(source, ECHO | {"option.chat_template": "inside/template.jinja"})
    write_model(source, folder / "converted", "moved", load_options(source, {}))
    shutil.copytree(folder / "converted" / "moved", models / "moved")


def test_a_converted_folder_knows_where_its_paths_start(fleet: Served) -> None:
    assert fleet.is_ready("moved")
    assert "is neither a template nor a file" not in fleet.log()


def test_each_load_warns_of_what_is_open_and_closes_its_memory(fleet: Served) -> None:
    warning = fleet.logged(r"bare: (.*): open over HTTP .*gRPC.*deploy/README\.md")
    assert {"shared-memory", "logging", "trace"} <= {*warning[1].split(", ")}
    names = shared_memory(fleet.family(), "triton")
    assert {Path(name).stat().st_mode & 0o077 for name in names} == {0}


@pytest.mark.parametrize("model", ["bare", "backend", "by_hand", "lmi_echo"])
def test_a_folder_is_completed_and_serves(fleet: Served, model: str) -> None:
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 3, "stop_sequences": ["c"]}}
    status, answer = fleet.generate(model, body)
    assert (status, answer["generated_text"]) == (200, "a ba")


def test_sagemakers_invocations_take_a_body_as_it_is(fleet: Served) -> None:
    """Triton puts its own JSON header and four bytes of length before the answer."""
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}}
    kind = "application/vnd.sagemaker-triton.binary+json;json-header-size=0"
    address = f"127.0.0.1:{fleet.sagemaker_port}"
    status, _, answer = answer_of(address, "/invocations", body, {"Content-Type": kind})
    assert status == 200
    assert answer.endswith(b'{"generated_text": "a ba"}')


def test_a_completed_folder_is_decoupled_and_has_no_batcher(fleet: Served) -> None:
    for model in ("bare", "backend", "lmi_echo"):
        config = _config(fleet, model)
        assert config["model_transaction_policy"] == {"decoupled": True}
        assert "dynamic_batching" not in config


def test_a_model_that_would_be_started_twice_is_refused(fleet: Served) -> None:
    assert not fleet.is_ready("copies")
    fleet.logged("would start this model 2 times")


def test_fields_written_by_hand_are_refused_by_name(fleet: Served) -> None:
    assert not fleet.is_ready("batches")
    for field in (
        "max_batch_size: 8",
        "model_transaction_policy",
        "sequence",
        "input prompt",
        "inst",
    ):
        fleet.logged(f"config.pbtxt: {field}")
    assert "triton_python_backend_utils.py" not in fleet.log()


def test_a_refused_option_is_named_with_its_line(fleet: Served) -> None:
    assert not fleet.is_ready("bad")
    fleet.logged("serving.properties:3: option.x=1 is refused by the echo engine")


def test_models_that_failed_make_a_server_not_ready(fleet: Served) -> None:
    def health(*options: str) -> tuple[int, dict[str, str]]:
        done = lmi("health", f"http://{fleet.http}", *options)
        return done.returncode, dict(line.split(": ", 1) for line in done.stdout.splitlines())

    status, found = health()
    assert status == 1
    assert found["bare"] == found["backend"] == found["lmi_echo"] == "ready"
    assert found["bad"].startswith("it could not be loaded: ")
    assert "option.x=1 is refused" in found["bad"]
    assert "2 times" in found["copies"]
    # No restart mends them.
    assert health("--live")[0] == health("--model", "bare")[0] == 0
    assert health("--model", "bad")[0] == 1
    with front_end(fleet.log_file, f"--triton-url=http://{fleet.http}") as asked:
        wait_for(lambda: b"2 times" in asked.ask("/ping")[2])
        status, _, body = asked.ask("/ping")
        assert status == 503
        assert {"bad", "copies"} <= {each.split(": ")[0] for each in json.loads(body)["problems"]}


def test_a_dead_stub_is_repaired_by_an_unload_and_a_load(tmp_path: Path) -> None:
    """A load alone says 200 and repairs only a model one of whose files has changed.

    Triton 24.10 itself may abort when a stub is killed, of a `lock_exception` of Boost in its
    thread that watches the stub; `lmi-backend serve` then starts it again, a bare server is gone.
    """
    models = tmp_path / "models"
    (write_properties(models / "bare", ECHO) / "1").mkdir()
    (models / "bare" / "1" / "model.py").write_text(MODEL_PY, encoding="utf-8")
    for _ in range(STARTS):
        with tritonserver(models, tmp_path, *EXPLICIT) as served:
            try:
                _repair_a_dead_stub(served)
            except OSError:
                # Written before the server ends, and so before its connections do.
                if "lock_exception" not in served.log():
                    raise
            else:
                return
    pytest.fail(f"the server aborted at each of {STARTS} starts")


def _repair_a_dead_stub(served: Served) -> None:
    load, unload = (f"/v2/repository/models/bare/{word}" for word in ("load", "unload"))
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 3}}
    # Python may have written its bytecode beside the model since it was loaded.
    assert served.post(load, {})[0] == 200
    wait_for(lambda: served.generate("bare", body)[0] == 200)
    stubs = [each for each in _family(served) if "bare" in " ".join(each.cmdline())]
    for stub in stubs:
        stub.kill()
    assert stubs
    wait_for(lambda: "not healthy" in str(served.generate("bare", body)))
    assert served.post(load, {})[0] == 200
    assert "not healthy" in str(served.generate("bare", body))
    for path in (unload, load):
        assert served.post(path, {})[0] == 200
    wait_for(lambda: served.generate("bare", body)[0] == 200)


def test_a_server_that_gives_up_waiting_for_a_client_leaves_nothing(fleet: Served) -> None:
    """An idle connection is enough for it to end without ending its stubs. The last test here."""
    with contextlib.closing(http.client.HTTPConnection(fleet.http, timeout=HANG_SECONDS)) as client:
        client.request("GET", "/v2/health/ready")
        client.getresponse().read()
        family = _family(fleet)
        stubs = [each for each in family if "stub" in each.name()]
        words = [word for each in stubs for word in each.cmdline()]
        regions = {Path("/dev/shm", word) for word in words if "shm_region" in word}
        assert len(stubs) == len(regions) >= 4
        fleet.process.terminate()
        assert fleet.process.wait(HANG_SECONDS) == 1
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not _alive(family))
        assert _alive(family) == []
    assert not [region for region in regions if region.exists()]


def _family(served: Served) -> list[psutil.Process]:
    return psutil.Process(served.process.pid).children(recursive=True)


def _alive(processes: Sequence[psutil.Process]) -> list[str]:
    """Return the states and commands of those that have not ended."""
    alive = []
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if each.status() != psutil.STATUS_ZOMBIE:
                alive.append(f"{each.status()} {' '.join(each.cmdline())}")
    return alive


def _config(served: Served, model: str) -> Any:
    with tritonclient.http.InferenceServerClient(served.http) as client:
        return client.get_model_config(model)
