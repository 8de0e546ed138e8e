"""Recipes of docs/development.md, carried out on a copy of the package.

`test_added_client.py` and `test_added_engine.py` have the others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages.added import Run, added
from tests.support.records.pages import blocks
from tests.support.run.places import ROOT, SCRIPTS, TINY

Steps = dict[str, tuple[str, str]]
"""A file to what is inserted there, and before what."""
READ: Steps = {
    "options/table/transformers.py": (
        "DEVICE_MAP: Final",
        'USE_KERNELS: Final = _argument("use_kernels", BOOL, "Use them.", default=False)\n',
    ),
    "engines/transformers/loading.py": ('"attn_implementation")', '"use_kernels", '),
}
DECIDES: Steps = {
    "options/table/common.py": (
        "RESUME_WINDOW: Final",
        'MOST_CHATS: Final = Option(\n    name="option.most_chats",\n    kind=whole(0),\n'
        '    default=7,\n    plan_field="most_chats",\n    help="Chats at once.",\n)\n',
    ),
    "engine_config.py": ("    adapter_roots: tuple", "    most_chats: int = 1\n"),
    "plan/planner.py": (
        "        resume_window=options",
        "        most_chats=options[opt.MOST_CHATS],\n",
    ),
}
METRIC: Steps = {
    "serving/stats.py": ("    given_up: int = 0", "    chats: int = 3\n"),
    "serving/metrics.py": (
        '    "lmi_requests_given_up_total": (',
        '    "lmi_chats": (GAUGE, "Chats"),\n',
    ),
}
SERIES = (
    '        ("lmi_requests_given_up_total", own)',
    '        ("lmi_chats", own): now.chats,\n',
)
PLAN = """
import sys
from pathlib import Path
import msgspec
from lmi_backend.options import load_options
from lmi_backend.plan import plan_model
from lmi_backend.serving.admission import Limits

plan = plan_model(load_options(Path(sys.argv[1]), {}), {})
print(Limits.of(plan).requests.most_chats)
print(msgspec.json.encode([(plan.engine, plan.config, 1)]).decode())
"""
COUNTED = """
from tests.unit.serving.test_metrics import *
test_every_family_has_series_and_every_series_a_family()
"""
CHECK = ("-m", "lmi_backend.cli.main", "check")


def test_a_worker_runs_by_hand() -> None:
    (block,) = [each for each in blocks("docs/development.md") if each.language == "python"]
    words = [sys.executable, "-c", block.text]
    environment = os.environ | {"PYTHONPATH": "."}
    printed = subprocess.check_output(words, cwd=ROOT, env=environment, timeout=120, text=True)
    assert printed.startswith("one two three")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


@pytest.fixture(scope="module")
def run(root: Path) -> Run:
    """Run Python where all recipes were carried out, but for the series of a metric."""
    (root / "nothing").mkdir()
    run = added(root, root / "nothing")
    for name, (before, text) in (READ | DECIDES | METRIC).items():
        insert(root / "lmi_backend" / name, before, text)
    return run


def insert(path: Path, before: str, text: str) -> None:
    whole = path.read_text("utf-8")
    assert whole.count(before) == 1, (path, before)
    path.write_text(whole.replace(before, text + before), encoding="utf-8")


def model(folder: Path, *lines: str) -> Path:
    (folder / "serving.properties").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_an_option_that_an_engine_reads(
    run: Run, root: Path, tmp_path: Path, vllm_interpreter: Any
) -> None:
    lines = ("option.rolling_batch=disable", f"option.model_id={TINY / 'llama'}")
    folder = model(tmp_path, *lines, "option.use_kernels=true")
    assert "transformers use_kernels" in run(*CHECK, folder).stdout
    _, plans = run("-c", PLAN, folder).stdout.splitlines()
    assert '"use_kernels":true' in plans
    # All else would say, too, that what the engine does not look at is read.
    plans = plans.replace('"use_kernels":true', '"use_kernels":true,"used_by_nobody":true')
    script = str(SCRIPTS / "unread_arguments.py")
    read = vllm_interpreter.run(script, str(root), data=plans.encode())
    ((names, _),) = json.loads(read)
    assert ("use_kernels" in names, "used_by_nobody" in names) == (False, True)


@pytest.mark.parametrize(("line", "value"), [("", "7"), ("option.most_chats=5", "5")])
def test_an_option_that_decides_something(run: Run, tmp_path: Path, line: str, value: str) -> None:
    folder = model(tmp_path, "option.rolling_batch=echo", line)
    assert run("-c", PLAN, folder).stdout.splitlines()[0] == value
    assert ("used as most_chats" in run(*CHECK, folder).stdout) == bool(line)


def test_a_metric(run: Run, root: Path) -> None:
    assert "AssertionError" in run("-c", COUNTED).stderr
    insert(root / "lmi_backend" / "serving" / "metrics.py", *SERIES)
    done = run("-c", COUNTED)
    assert done.returncode == 0, done.stderr
    page = run("-c", "import metrics_page; print(*metrics_page.metrics())").stdout
    assert "`lmi_chats` | gauge | Chats" in page
