"""What `check` and `plan` say of the release of vLLM that is installed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_backend import api
from lmi_backend.cli.main import main
from lmi_backend.cli.planning import UNREAD
from lmi_backend.options.releases import newest_run
from tests.support.packages.installed_engine import interpreter, with_version
from tests.support.packages.queried_engine import queried_release, unknown_release

# Nobody can fetch org/m, so a plan does without its size.
STATUS = {"check": 0, "plan": UNREAD}


def notes_of(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main([command, str(folder), "--json"]) == STATUS[command]
    notes: list[str] = json.loads(capsys.readouterr().out)["notes"]
    return notes


@pytest.mark.parametrize("command", ["check", "plan"])
def test_one_that_is_newer_than_any_that_was_run_is_said(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "serving.properties").write_text("option.model_id=org/m\n", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    newest = newest_run("vllm")
    for version, is_newer in (("9.1.0+cpu", True), (newest, False)):
        package = with_version(tmp_path / version / "vllm", version)
        python = interpreter(package.parent, package)
        monkeypatch.setenv("PYTHON_EXECUTABLE", python)
        notes = [note for note in notes_of(command, tmp_path, capsys) if "was run" in note]
        newer = f"vLLM 9.1.0 is newer than {newest}, the newest that was run: not run yet"
        assert [note.startswith(newer) for note in notes] == [True] * is_newer
        assert main([command, str(tmp_path)]) == STATUS[command]
        assert (f"note: {newer}" in capsys.readouterr().out.replace("note        ", "note: ")) is (
            is_newer
        )


Judged = tuple[int, int, dict[str, Any], str]
"""The exit statuses of `check` and `plan`, what `check` says, and the errors."""
Judge = Callable[[str, str], Judged]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


@pytest.fixture
def judge(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Judge:
    """Judge lines by the release of an interpreter."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def judged(python: str, lines: str) -> Judged:
        text = f"option.model_id=org/m\noption.rolling_batch=vllm\n{lines}\n"
        (model / "serving.properties").write_text(text, encoding="utf-8")
        monkeypatch.setenv("PYTHON_EXECUTABLE", python)
        checked = main(["check", str(model), "--json"])
        listed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return checked, main(["plan", str(model), "--json"]), listed, capsys.readouterr().err

    return judged


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An interpreter with a release that no record knows, and that was queried."""
    return queried_release(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('option.speculative_config={"method": "medusa", "model": "org/d"}', "accepted: ngram"),
        ("option.speculative_length=3\noption.draft_model_tp_size=2", '"draft_tensor_parallel_'),
        ("option.quantize=marlin", "is not what vLLM 9.1.0 takes, and no plugin is installed"),
        ("option.kv_cache_dtype=fp9", "that adds it; accepted: auto, fp8"),
        ("option.tool_call_parser=mistral", "accepted: hermes, llama3_json"),
        ("option.reasoning_parser=deepseek_r1", "accepted: qwen3"),
        ("option.enforce_eager=true", "sets enforce_eager, which vLLM 9.1.0 does not have"),
        ("option.watch_rate=3", "is neither an option of LMI nor an argument of vllm 9.1.0"),
    ],
)
def test_what_the_installed_release_does_not_take_is_refused(
    lines: str, problem: str, python: str, judge: Judge
) -> None:
    checked, planned, listed, error = judge(python, lines)
    assert (checked, planned) == (2, 2)
    assert problem in listed["problems"][0]
    assert problem in error
    assert "refused" in [row["status"] for row in listed["options"]]


@pytest.mark.parametrize(
    ("is_installed", "status", "release"),
    [
        (True, 2, "vLLM 9.1.0, which {python} has"),
        (False, 0, "vLLM 0.32.0, the recorded release: {python} has none (--engine-version"),
    ],
)
def test_a_verdict_names_its_release(  # noqa: PLR0917
    is_installed: bool,
    status: int,
    release: str,
    python: str,
    judge: Judge,
    model: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same file is refused where the engine is installed, and doubted where none is."""
    asked = python if is_installed else sys.executable
    checked, _, listed, _ = judge(asked, "option.quantize=marlin")
    shown = release.format(python=asked)
    assert (checked, bool(listed["problems"])) == (status, is_installed)
    assert listed["release"].startswith(shown)
    assert api.check(model).release == listed["release"]
    main(["check", str(model)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"judged by {shown}")
    assert last.endswith("; other releases may refuse less or more")
    # A release that is supposed gives the same answer everywhere.
    main(["check", str(model), "--json", "--engine-version", "0.26.0"])
    assert json.loads(capsys.readouterr().out)["release"] == (
        "vLLM 0.26.0, as --engine-version says"
    )


def test_a_release_that_no_record_knows_is_queried_once(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHON_EXECUTABLE", unknown_release(tmp_path))
    lines = "option.model_id=org/m\noption.watch_rate=3\noption.moe_backend=new\n"
    (model / "serving.properties").write_text(lines, encoding="utf-8")
    # What the release takes, its load alone can tell until then.
    assert main(["plan", str(model), "--json"]) == STATUS["plan"]
    planned = json.loads(capsys.readouterr().out)
    assert "unknown here, so judged as 0.32.0; which" in planned["reasons"][-1]
    for is_first in (True, False):
        assert main(["check", str(model), "--json"]) == 2
        shown = capsys.readouterr()
        assert ("is queried for its arguments, once" in shown.err) is is_first
        problems = json.loads(shown.out)["problems"]
        assert "is neither an option of LMI nor an argument of vllm 9.1.0" in problems[0]


def test_a_release_that_does_not_answer_is_judged_by_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    python = Path(unknown_release(tmp_path))
    broken = python.read_text("utf-8").replace("exec cp", "{ echo no GPU >&2; exit 1; }; false")
    python.write_text(broken, encoding="utf-8")
    (tmp_path / "serving.properties").write_text("option.model_id=org/m\n", encoding="utf-8")
    monkeypatch.setenv("PYTHON_EXECUTABLE", str(python))
    assert main(["check", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "does not say which arguments it takes: no GPU" in shown.err
    assert "unknown here, so judged as 0.32.0" in shown.out.splitlines()[-1]


def test_an_engine_without_releases_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serving.properties").write_text("option.rolling_batch=echo\n", encoding="utf-8")
    main(["check", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1] == "1 settings; nothing is refused"
    main(["check", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["release"] == ""


def test_what_a_plugin_may_add_is_doubted(
    tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "vllm_quant-1.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\nq = quant:register\n")
    python = queried_release(tmp_path, monkeypatch)
    checked, planned, listed, _ = judge(python, "option.quantize=marlin")
    assert (checked, planned) == (0, UNREAD)
    assert "vLLM 9.1.0 has it only from a plugin, else the load fails" in "".join(listed["notes"])


def test_what_is_new_in_the_installed_release_is_taken(python: str, judge: Judge) -> None:
    lines = 'option.reasoning_effort_map={"medium": "low"}\noption.disable_prefix_caching=true'
    checked, planned, listed, _ = judge(python, lines)
    assert (checked, planned) == (0, UNREAD)
    details = {row["name"]: row["detail"] for row in listed["options"]}
    assert details["option.reasoning_effort_map"] == (
        "vllm reasoning_effort_map, of its HTTP server"
    )
    assert details["option.disable_prefix_caching"] == "vllm enable_prefix_caching, turned over"
