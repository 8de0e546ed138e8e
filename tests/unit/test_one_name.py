"""A public class has a name of its own: what one name says is one thing in the whole package."""

import ast
from collections import defaultdict
from pathlib import Path

import lmi_backend

PACKAGE = Path(lmi_backend.__file__).parent
ALLOWED = {
    # LMI's own API for handlers of the user's has these names.
    "Output": "worker/handlers/provided/djl_python/outputs.py",
    "Token": "worker/handlers/provided/djl_python/request_io.py",
}
"""Names of two classes, and where the one is that must have it."""


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    clashes = {
        name: places
        for name, places in found.items()
        if len(places) > 1 + (ALLOWED.get(name) in places)
    }
    assert not clashes, f"rename all but one of each: {clashes}"
