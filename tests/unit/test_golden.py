"""From an LMI folder, its environment and a machine to a plan, reviewed as a diff.

A case is a folder: what the user has (serving.properties, env.json, hardware.json, and config.json
of the model where it is known), and what comes of it: plan.json and command.txt, how the first
worker is started; or error.txt.
plan.json has the values that differ from plan_defaults.json: whatever else a plan decides is what
stands there. plan_reasons.txt has each sentence of all plans' reasons once. UPDATE_GOLDEN=1 makes
the expected files anew, but for plan_defaults.json; give a new field its usual value there.
"""

import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from lmi_backend.cli.planning import parse_size
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import load_options
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.sizing.model_facts import read_model_facts

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir())
MADE = ("plan.json", "command.txt", "error.txt")
DATA = GOLDEN.parent / "data"
DEFAULTS = json.loads((DATA / "plan_defaults.json").read_text(encoding="utf-8"))
FIGURE = re.compile(r"\b\d[\d.]*(?: [KMGT]iB|%)?")
MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent))
RUN = Path("/run/lmi")


def machine(case: str) -> Hardware:
    read = json.loads((GOLDEN / case / "hardware.json").read_text())
    return Hardware(
        devices=tuple(str(index) for index in range(read["gpus"])),
        device_memory=_size(read.get("gpu_memory")),
        host_memory=_size(read.get("host_memory")),
        nodes=read.get("nodes", 1),
    )


def _size(text: str | None) -> int:
    return parse_size(text) if text else 0


def make(case: str, parent: Path) -> tuple[dict[str, str], list[str]]:
    """Return the files that come of a case, and the reasons of its plan."""
    folder = parent / case
    ignored = shutil.ignore_patterns("*.pbtxt", "plan.json", "*.txt", "env.json")
    shutil.copytree(GOLDEN / case, folder, ignore=ignored)
    environment = json.loads((GOLDEN / case / "env.json").read_text())
    try:
        options = load_options(folder, environment)
        facts = read_model_facts(folder)
        plan = make_plan(options, {"PATH": "", **environment}, machine(case), facts)
    except ConfigurationError as error:
        return {"error.txt": portable(f"{error}\n", folder)}, []
    values = json.loads(portable(json.dumps(plan.as_dict()), folder))
    reasons = values.pop("reasons")
    return {
        "plan.json": json.dumps(different(values), indent=2) + "\n",
        "command.txt": portable(first_command(plan), folder),
    }, reasons


def first_command(plan: EnginePlan) -> str:
    """Return the words that start worker 0, one a line where they begin with a dash."""
    address = f"{plan.parallel.hosts[0]}:40000" if plan.parallel.hosts else str(RUN / "0.sock")
    place = LaunchContext(0, RUN, address, "token", 29400 if plan.parallel.processes > 1 else 0)
    words = shlex.join(worker_command(plan, place, {}).argv)
    return words.replace(" -", "\n  -") + "\n"


def portable(text: str, folder: Path) -> str:
    """Take the places of this machine out."""
    places = (
        (folder, "FOLDER"),
        (sys.executable, "PYTHON"),
        (MPIRUN, "MPIRUN"),
    )
    for place, name in places:
        for written in (shlex.quote(str(place)), str(place)):
            text = text.replace(written, f"<{name}>")
    return text


@pytest.mark.parametrize("case", CASES)
def test_a_folder_is_planned_and_written_as_reviewed(case: str, tmp_path: Path) -> None:
    made, _ = make(case, tmp_path)
    if os.environ.get("UPDATE_GOLDEN"):
        for name in MADE:
            (GOLDEN / case / name).unlink(missing_ok=True)
        for name, text in made.items():
            (GOLDEN / case / name).write_text(text, encoding="utf-8")
    expected = {name: GOLDEN / case / name for name in MADE if (GOLDEN / case / name).is_file()}
    assert made == {name: path.read_text(encoding="utf-8") for name, path in expected.items()}


def test_every_reason_reads_as_reviewed(tmp_path: Path) -> None:
    written = sentences({case: make(case, tmp_path)[1] for case in CASES})
    if os.environ.get("UPDATE_GOLDEN"):
        (DATA / "plan_reasons.txt").write_text(written, encoding="utf-8")
    assert written == (DATA / "plan_reasons.txt").read_text(encoding="utf-8")


def sentences(reasons: Mapping[str, Sequence[str]]) -> str:
    """Return each sentence with the cases that have it, by the figures that stand for its #.

    They come in the order of the plans: a plan that has two of them the other way round fails.
    """
    order: TopologicalSorter[str] = TopologicalSorter()
    cases: dict[str, dict[str, list[str]]] = {}
    for case, texts in reasons.items():
        named = [FIGURE.sub("#", text) for text in texts]
        for sentence, text in zip(named, texts, strict=True):
            order.add(sentence)
            figures = ", ".join(FIGURE.findall(text))
            cases.setdefault(sentence, {}).setdefault(figures, []).append(case)
        for first, second in pairwise(named):
            order.add(second, first)
    lines = []
    for sentence in order.static_order():
        lines.append(sentence)
        for figures, having in cases[sentence].items():
            text = f"{figures}: {' '.join(having)}" if figures else " ".join(having)
            lines += textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def different(plan: dict[str, object]) -> dict[str, object]:
    """Return the values that a plan has not from the defaults; every default has to be there."""
    assert DEFAULTS.keys() <= plan.keys(), "plan_defaults.json has a field that is gone"
    # As text: True is not 1, and 1.0 is not 1.
    same = {name for name, value in DEFAULTS.items() if json.dumps(value) == json.dumps(plan[name])}
    return {name: value for name, value in plan.items() if name not in same}


def test_there_are_enough_cases_and_each_starts_from_properties() -> None:
    assert len(CASES) >= 40
    for case in CASES:
        names = {path.name for path in (GOLDEN / case).iterdir()}
        assert {"serving.properties", "env.json", "hardware.json"} <= names
        assert ("error.txt" in names) == case.startswith("refused_")
