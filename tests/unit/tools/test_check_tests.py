"""The rules for tests."""

import ast

import check_tests
import pytest

DURATION = "import time\ndef test():\n began = time.monotonic()\n act()\n"
RULES = [
    ("sleeps", "chaos/test_a.py", "time.sleep(0.05)", "time.sleep(0.06)"),
    ("sleeps", "unit/test_a.py", "S = 0.01\ntime.sleep(3 * S)", "S = 0.02\ntime.sleep(3 * S)"),
    ("sleeps", "unit/test_a.py", "self.sleep(pause)", "submit(time.sleep, 2)"),
    ("sleeps", "support/a.py", "time.sleep(pause)", "await asyncio.sleep(1)"),
    (
        "verdicts",
        "chaos/test_a.py",
        f"{DURATION} took = time.monotonic() - began\n assert act() < 5",
        f"{DURATION} took = time.monotonic() - began\n assert took < 5",
    ),
    (
        "verdicts",
        "support/a.py",
        f"{DURATION} assert began <= stamp <= time.time()",
        f"{DURATION} end = began + 5\n while time.monotonic() < end: pass",
    ),
    ("places", "unit/test_a.py", "Path('/tmp').exists()", "tmp_path.parent.chmod(0)"),
    ("variables", "unit/test_a.py", "os.getenv('UPDATE_GOLDEN')", "os.getenv('A')"),
    ("logs", "chaos/test_a.py", "assert 'a' not in a.log()", "assert re.search('a', a.log())"),
]


@pytest.mark.parametrize(("rule", "path", "accepted", "rejected"), RULES)
def test_a_rule_takes_one_snippet_and_refuses_the_other(
    rule: str, path: str, accepted: str, rejected: str
) -> None:
    for text, is_broken in ((accepted, False), (rejected, True)):
        problems = [*check_tests.RULES[rule](check_tests.Test(path, ast.parse(text)))]
        assert bool(problems) == is_broken


def test_a_reason_that_no_file_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    test = check_tests.Test("chaos/test_a.py", ast.parse("time.sleep(1)"))
    excused = {"sleeps": {"chaos/test_a.py": "open", "chaos/test_b.py": "open"}}
    monkeypatch.setattr(check_tests, "EXCUSED", excused)
    assert not list(check_tests.check(test))
    (line,) = check_tests.unused([test])
    assert line == "tests/chaos/test_b.py:1: does not break sleeps: remove it from check_tests.toml"


def test_private_names_of_the_package_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import x\nx._snapshot\nself._snapshot\nx._no_name_of_ours\nfrom y import _now\n"
    monkeypatch.setattr(check_tests, "_private_names", lambda: {"_snapshot", "_now"})
    test = check_tests.Test("unit/test_a.py", ast.parse(text))
    for left, problems in ((1, 2), (2, 0), (3, 1)):
        monkeypatch.setattr(check_tests, "PRIVATE_LEFT", {test.path: left})
        assert len([*check_tests.more_private(test)]) == problems
