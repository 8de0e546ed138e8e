"""Recipes of docs/development.md, each carried out on a copy of the package.

`test_added_client.py` and `test_added_engine.py` have the others.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.added import Run, added
from tests.support.places import ENGINE_PYTHON, TESTS, TINY

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
from lmi_backend.options import load_options
from lmi_backend.plan import plan_model
from lmi_backend.serving.limits import Limits

plan = plan_model(load_options(Path(sys.argv[1]), {}), {})
print(Limits.of(plan).requests.most_chats)
"""
CONFIG = """
import sys
from pathlib import Path
import msgspec
from lmi_backend.options import load_options
from lmi_backend.plan import plan_model

plan = plan_model(load_options(Path(sys.argv[1]), {}), {})
print(msgspec.json.encode([(plan.engine, plan.config)]).decode())
"""
COUNTED = """
from tests.unit.serving.test_metrics import *
test_every_family_has_series_and_every_series_a_family()
"""


@pytest.fixture
def carry_out(tmp_path: Path) -> Callable[[Steps], Run]:
    (tmp_path / "nothing").mkdir()

    def carry_out(steps: Steps) -> Run:
        run = added(tmp_path, tmp_path / "nothing")
        for name, (before, text) in steps.items():
            insert(tmp_path / "lmi_backend" / name, before, text)
        return run

    return carry_out


def insert(path: Path, before: str, text: str) -> None:
    whole = path.read_text("utf-8")
    assert whole.count(before) == 1, (path, before)
    path.write_text(whole.replace(before, text + before), encoding="utf-8")


def write_model(folder: Path, *lines: str) -> Path:
    folder.mkdir()
    (folder / "serving.properties").write_text("\n".join(lines), encoding="utf-8")
    return folder


def unread(root: Path, plans: str) -> list[list[str]]:
    """Return the arguments that the real code of the engine does not look at."""
    done = subprocess.run(
        (str(ENGINE_PYTHON), str(TESTS / "support" / "unread_arguments.py")),
        input=plans.encode(),
        env={**os.environ, "PYTHONPATH": f"{root}", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    read: list[list[str]] = json.loads(done.stdout)
    return read


def test_an_option_that_an_engine_reads(carry_out: Callable[[Steps], Run], tmp_path: Path) -> None:
    run = carry_out(READ)
    lines = ("option.rolling_batch=disable", f"option.model_id={TINY / 'llama'}")
    model = write_model(tmp_path / "model", *lines, "option.use_kernels=true")
    checked = run("-m", "lmi_backend.cli.main", "check", model).stdout
    assert "transformers use_kernels" in checked
    plans = run("-c", CONFIG, model).stdout
    assert '"use_kernels":true' in plans
    # All else would say, too, that what the engine does not look at is read.
    plans = plans.replace('"use_kernels":true', '"use_kernels":true,"used_by_nobody":true')
    (names,) = unread(tmp_path, plans)
    assert ("use_kernels" in names, "used_by_nobody" in names) == (False, True)


def test_an_option_that_decides_something(
    carry_out: Callable[[Steps], Run], tmp_path: Path
) -> None:
    run = carry_out(DECIDES)
    model = write_model(tmp_path / "model", "option.rolling_batch=echo")
    assert run("-c", PLAN, model).stdout == "7\n"
    model = write_model(tmp_path / "other", "option.rolling_batch=echo", "option.most_chats=5")
    assert run("-c", PLAN, model).stdout == "5\n"
    assert "used as most_chats" in run("-m", "lmi_backend.cli.main", "check", model).stdout


def test_a_metric(carry_out: Callable[[Steps], Run], tmp_path: Path) -> None:
    run = carry_out(METRIC)
    assert "AssertionError" in run("-c", COUNTED).stderr
    insert(tmp_path / "lmi_backend" / "serving" / "metrics.py", *SERIES)
    done = run("-c", COUNTED)
    assert done.returncode == 0, done.stderr
    page = run("-c", "import metrics_page; print(*metrics_page.metrics())").stdout
    assert "`lmi_chats` | gauge | Chats" in page
