"""An engine is added by one module of the option table and one folder of engines, and no more.

A copy of the package gets the two of tests/fakes/added; then everything knows the engine.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.packages.added import Run, added
from tests.support.run.places import TESTS

LMI = ("-m", "lmi_backend.cli.main")
WORKER = """
from pathlib import Path
from tests.support.servers.harness import started

with started({"option.rolling_batch": "reverse", "option.shout": "true"}, Path.cwd()) as harness:
    sink = harness.ask("one two three")
    assert sink.error is None, sink.error
    print(harness.service.snapshot().workers, sink.text)
"""
PAGE = "import options_page; print(*options_page.options(), sep='\\n')"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python where the package has one engine more."""
    return added(tmp_path_factory.mktemp("added"), TESTS / "fakes" / "added")


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        folder = tmp_path / "model"
        folder.mkdir(exist_ok=True)
        (folder / "serving.properties").write_text("\n".join(lines), encoding="utf-8")
        return folder

    return write


def test_its_options_are_checked(run: Run, model: Callable[..., Path]) -> None:
    own = ("option.rolling_batch=reverse", "option.shout=true", "option.dtype=fp16")
    output = run(*LMI, "check", model(*own, "option.mpi_mode=true")).stdout
    assert "reverse upper" in output
    assert "reverse precision" in output
    assert "nothing is refused" in output
    refused = run(*LMI, "check", model(*own, "option.shuot=true"))
    assert refused.returncode == 2
    assert "did you mean option.shout?" in refused.stdout


def test_its_options_are_known_under_other_engines(run: Run, model: Callable[..., Path]) -> None:
    output = run(*LMI, "check", model("option.rolling_batch=echo", "option.shout=true")).stdout
    assert "it is an option of reverse, and this model runs on echo" in output
    assert "(option.rolling_batch=reverse, or SERVING_FEATURES=reverse chooses reverse)" in output
    refused = run(*LMI, "check", model("option.rolling_batch=revers")).stdout
    assert "accepted: auto, disable, vllm, " in refused
    assert ", reverse" in refused


@pytest.mark.parametrize(
    "line", ["option.rolling_batch=reverse", "option.entryPoint=djl_python.reverse"]
)
def test_it_is_planned(run: Run, model: Callable[..., Path], line: str) -> None:
    done = run(*LMI, "plan", "--json", model(line, "option.shout=true", "engine=MPI"))
    plan = json.loads(done.stdout)
    assert (plan["engine"], plan["mode"], plan["max_running"]) == ("reverse", "python", 7)
    assert plan["engine_arguments"] == {"upper": True, "slots": 7}
    assert "python mode: a word is turned around by one process" in plan["reasons"]
    assert "7 requests at once: LMI's default for Reverse!" in plan["reasons"]


def test_its_model_is_converted(run: Run, model: Callable[..., Path], tmp_path: Path) -> None:
    folder, repository = model("option.rolling_batch=reverse"), tmp_path / "repository"
    done = run(*LMI, "convert", folder, "--repository", repository)
    assert done.returncode == 0, done.stderr
    assert (repository / "model" / "config.pbtxt").is_file()


def test_the_doctor_imports_its_library(run: Run, model: Callable[..., Path]) -> None:
    done = run(*LMI, "doctor", "--json", model("option.rolling_batch=reverse"))
    found = {each["what"]: each for each in json.loads(done.stdout)}
    assert found["model: engine"]["status"] == "ok"
    assert found["model: engine"]["found"].startswith(f"json {json.__version__}, ")


def test_its_options_are_listed_and_documented(run: Run) -> None:
    listed = run(*LMI, "options", "--engine", "reverse", "shout").stdout
    assert "option.shout" in listed
    assert "mapped: reverse upper" in listed
    page = run("-c", PAGE).stdout
    assert "\n## Reverse!\n" in page
    assert "Answer in capitals. Sets `upper`." in page


def test_its_worker_answers(run: Run) -> None:
    done = run("-c", WORKER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("THREE TWO ONE")
