"""What the doctor says of fast paths, with interpreters that are made up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.cli.doctor_fast_paths import fast_paths
from lmi_backend.cli.main import main
from lmi_backend.engines.vllm.inside.table import NEEDS
from lmi_backend.options.engine_spec import implementations
from lmi_backend.options.releases import newest_run
from tests.support.installed_engine import with_version

Make = Callable[..., str]
PATHS = [
    {
        "name": name,
        "purpose": f"what {name} is for",
        "missing": [],
        "public_way": f"vLLM without {name}",
        "cost": f"time for {name}",
    }
    for name in ("waits", "media")
]
LOST = [PATHS[0], PATHS[1] | {"missing": ["MediaConnector", "HTTPConnection.get"]}]


def report(paths: list[dict[str, Any]], **missing: list[str]) -> str:
    needs = [{"name": need.name, "missing": missing.get(need.name, [])} for need in NEEDS]
    return json.dumps({"version": "0.33.0", "fast_paths": paths, "needs": needs})


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make the workers' interpreter one that has a vLLM and says this of its fast paths."""

    def make(output: str, *, version: str = "0.33.0", status: int = 0) -> str:
        folder = tmp_path / f"python{len(list(tmp_path.iterdir()))}"
        package = with_version(folder / "vllm", version)
        (folder / "output").write_text(output, encoding="utf-8")
        python = folder / "python"
        python.write_text(
            f'#!/bin/sh\ncase "$1$2" in -mlmi_backend.engines.vllm.inside.doctor)\n'
            f"echo a greeting; [ -d lmi_backend ] || exit 9\n"
            f"[ {status} = 0 ] && cat {folder}/output || cat {folder}/output >&2; exit {status};;\n"
            f'*__version__*) [ "$3" = vllm ] && echo version {version};;\n'
            f'*) [ "$3" = vllm ] && echo \'["{package}"]\';; esac\n',
            encoding="utf-8",
        )
        python.chmod(0o755)
        monkeypatch.setenv("PYTHON_EXECUTABLE", str(python))
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        return str(python)

    return make


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["doctor", "--json", *words])
    parsed = json.loads(capsys.readouterr().out)
    found = {each["what"]: each for each in parsed}
    assert len(found) == len(parsed)
    return status, found


def model(folder: Path, *lines: str) -> str:
    folder.mkdir()
    text = "\n".join(("option.rolling_batch=vllm", "option.model_id=org/m", *lines))
    (folder / "serving.properties").write_text(text, encoding="utf-8")
    return str(folder)


def test_the_table_has_a_row_for_each(
    capsys: pytest.CaptureFixture[str], interpreter: Make
) -> None:
    interpreter(report(PATHS))
    _, found = doctor(capsys)
    assert found["fast paths"]["status"] == "ok"
    assert found["fast paths"]["found"] == "2 of 2 hold in vLLM 0.33.0"
    assert [row["state"] for row in found["fast paths"]["rows"]] == ["held", "held"]


def test_one_that_does_not_hold_is_said_with_what_is_missing_and_what_it_costs(
    capsys: pytest.CaptureFixture[str], interpreter: Make, tmp_path: Path
) -> None:
    interpreter(report(LOST))
    _, found = doctor(capsys, model(tmp_path / "m"))
    assert found["m: fast paths"]["status"] == "warning"
    assert found["m: fast paths"]["found"] == "1 of 2 hold in vLLM 0.33.0"
    main(["doctor", str(tmp_path / "m")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "waits held media public: lacks MediaConnector, HTTPConnection.get. " in shown
    assert "Instead: vLLM without media. Cost: time for media" in shown


def test_what_a_user_turns_off_is_not_held(
    capsys: pytest.CaptureFixture[str], interpreter: Make, tmp_path: Path
) -> None:
    interpreter(report(PATHS))
    for name, states in (("media", ["held", "public"]), ("false", ["public", "held"])):
        folder = model(tmp_path / name, f"option.vllm_fast_paths={name}")
        _, found = doctor(capsys, folder)
        rows = found[f"{name}: fast paths"]["rows"]
        assert [row["state"] for row in rows] == states
        assert found[f"{name}: fast paths"]["status"] == "ok"
        assert found[f"{name}: fast paths"]["found"].startswith(f"{states.count('held')} of 2 hold")
        assert {"public": "option.vllm_fast_paths", "held": ""}[rows[1]["state"]] == rows[1]["off"]
    main(["doctor", folder])
    assert "waits public: option.vllm_fast_paths turns it off. " in " ".join(
        capsys.readouterr().out.split()
    )


def test_what_nothing_replaces_is_an_error(
    capsys: pytest.CaptureFixture[str], interpreter: Make
) -> None:
    interpreter(report(PATHS, engine=["AsyncLLM.from_vllm_config"]))
    status, found = doctor(capsys)
    assert (status, found["fast paths"]["status"]) == (1, "error")
    lacking = "lacks what a model needs: engine (AsyncLLM.from_vllm_config)"
    assert lacking in found["fast paths"]["found"]
    assert newest_run("vllm") in found["fast paths"]["advice"]


def test_what_only_some_models_need_is_an_error_for_those(
    capsys: pytest.CaptureFixture[str], interpreter: Make, tmp_path: Path
) -> None:
    assert {need.name for need in NEEDS} == {"engine", "server", "ranks", "nodes"}
    interpreter(report(PATHS, ranks=["Executor"], nodes=["run_headless"]))
    _, found = doctor(capsys)
    assert found["fast paths"]["status"] == "ok"
    lacking = "it lacks what some models need: ranks (Executor), nodes (run_headless)"
    assert found["fast paths"]["found"].endswith(lacking)
    nodes = ("option.cluster_size=2", "option.distributed_executor_backend=mp")
    nodes = (*nodes, "option.master_addr=127.0.0.1", "option.tensor_parallel_degree=2")
    for name, lines, status, end in (
        ("one", (), "ok", "2 of 2 hold in vLLM 0.33.0"),
        ("mpi", ("engine=MPI",), "error", "lacks what a model needs: ranks (Executor)"),
        ("nodes", nodes, "error", "lacks what a model needs: nodes (run_headless)"),
    ):
        _, found = doctor(capsys, model(tmp_path / name, *lines))
        assert found[f"{name}: fast paths"]["status"] == status
        assert found[f"{name}: fast paths"]["found"].endswith(end)


@pytest.mark.parametrize("output", ["ImportError: no such thing", "[]", "{}", '{"version": 3}', ""])
def test_an_interpreter_that_cannot_say_is_a_warning(
    output: str, capsys: pytest.CaptureFixture[str], interpreter: Make
) -> None:
    python = interpreter(output)
    _, found = doctor(capsys)
    assert found["fast paths"]["status"] == "warning"
    assert found["fast paths"]["found"].startswith(f"{python} does not say which hold: ")
    python = interpreter(f"Traceback\n{output}", status=1)
    _, found = doctor(capsys)
    assert found["fast paths"]["found"].endswith(output or "Traceback")


def test_no_engine_or_one_without_fast_paths_has_no_row(
    capsys: pytest.CaptureFixture[str], interpreter: Make, tmp_path: Path
) -> None:
    interpreter(report(PATHS))
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "serving.properties").write_text("option.rolling_batch=echo\n")
    _, found = doctor(capsys, str(tmp_path / "echo"))
    assert not [what for what in found if "fast paths" in what]


def test_a_newer_release_is_said_with_the_count(
    capsys: pytest.CaptureFixture[str], interpreter: Make, tmp_path: Path
) -> None:
    python = interpreter(report(LOST), version="9.1.0")
    newer = (
        f"vLLM 9.1.0 is newer than {newest_run('vllm')}, the newest that was run: "
        "1 of 2 fast paths hold"
    )
    _, found = doctor(capsys)
    assert found["engines"]["advice"] == newer
    _, found = doctor(capsys, model(tmp_path / "m"))
    assert found["m: engine"]["advice"] == newer
    assert fast_paths(implementations()["vllm"], python).count() == (1, 2)
