"""What is installed, and what releases it, is named by its content."""

import re
from pathlib import Path

import lock
import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_package_of_a_lock_has_a_hash(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    packages = re.findall(r"^[\w.-]+==\S+(.*)\n(.*)", text, re.MULTILINE)
    assert len(packages) > 20
    assert [
        found for found in packages if found[0] != " \\" or "--hash=sha256:" not in found[1]
    ] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_a_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text(encoding="utf-8"))
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each[0])] == []
    assert [each for each in used if not re.fullmatch(r" # v[\d.]+", each[1])] == []


def of(*numbers: int) -> str:
    """Return what follows the version of a package."""
    return "".join(f" \\\n    --hash=sha256:{number}" for number in numbers)


def test_hashes_are_renewed_and_the_rest_of_a_lock_stays() -> None:
    before = f"# a remark\na_b==1{of(0)}\nC.d==2+cpu\n"
    made = f"a-b==1{of(1, 2)}\nc-d==2+cpu{of(3)}\n"
    assert lock.hashed(before, made) == f"# a remark\na_b==1{of(1, 2)}\nC.d==2+cpu{of(3)}\n"
