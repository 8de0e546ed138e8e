"""Record what the vLLM of .venv-engine takes, by its own word; --check only compares.

    .venv/bin/python tools/record_signature.py [--check]

What was recorded before stays, as what differs from the next release. TensorRT-LLM's record is kept
by hand: its library does not import without a GPU.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lmi_backend.options.releases import numbers
from lmi_backend.options.signature import RECORDS, query_library, records

Record = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parent.parent
ENGINE_PYTHON: Final = ROOT / ".venv-engine" / "bin" / "python"
QUERY: Final = "lmi_backend.engines.vllm.own_arguments"
OWN: Final = RECORDS / "vllm.json"
OTHERS: Final = RECORDS / "vllm_others.json"
ROUTES: Final = ROOT / "tests" / "data" / "vllm_routes.json"
_ROUTE: Final = re.compile(
    r'@\w*router\.(?:get|post|put|delete|head|patch|websocket)\(\s*"(/[^"]*)"'
)
_FLAG: Final = re.compile(r"\b(?:args|envs)\.([a-zA-Z]\w+)|getattr\([\w.]*\bargs, '(\w+)'")
_ROUTING: Final = re.compile(r"^register_|attach_router$|^build_app$")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "vllm.json"
        query_library(QUERY, str(ENGINE_PYTHON), answer)
        new: Record = json.loads(answer.read_bytes())
    releases = dict(records("vllm"))
    old = next(iter(releases.values()))
    if options.check:
        lines = json.dumps(differences(new, old), indent=1) if new != old else ""
        sys.stdout.write(lines and f"{OWN.name} has other things than the installed one: {lines}\n")
        return int(bool(lines))
    write(releases | {new["version"]: new}, new["version"])
    ROUTES.write_text(json.dumps(routes(new["version"]), indent=1) + "\n", encoding="utf-8")
    return 0


def routes(version: str) -> Record:
    """Return the paths that vLLM's server may have, and what it looks at where it adds some."""
    (package,) = ENGINE_PYTHON.parent.parent.glob("lib/python*/site-packages/vllm/entrypoints")
    texts = [path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))]
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    adding = (
        ast.unparse(node)
        for node in nodes
        if isinstance(node, ast.FunctionDef) and _ROUTING.search(node.name)
    )
    flags = {name for text in adding for pair in _FLAG.findall(text) for name in pair if name}
    paths = {path for text in texts for path in _ROUTE.findall(text)}
    return {"version": version, "routes": sorted(paths), "route_flags": sorted(flags)}


def write(releases: Mapping[str, Record], own: str) -> None:
    """Write every release: one whole, so that its arguments are a line each, the others by it."""
    arguments = releases[own]["arguments"]
    tables = {**releases[own], "arguments": {}}
    head = ",\n".join(f'  "{key}": {json.dumps(each)}' for key, each in tables.items())
    lines = (f'    "{name}": {json.dumps(texts)}' for name, texts in arguments.items())
    whole = ",\n".join(lines)
    OWN.write_text(f"{{\n{head.removesuffix('{}')}{{\n{whole}\n  }}\n}}\n", encoding="utf-8")
    others = (
        f' "{version}": {{\n'
        + ",\n".join(f'  "{table}": {json.dumps(each)}' for table, each in changed.items())
        + "\n }"
        for version, changed in changes(releases, own)
    )
    OTHERS.write_text("{\n" + ",\n".join(others) + "\n}\n", encoding="utf-8")


def changes(releases: Mapping[str, Record], own: str) -> Iterator[tuple[str, Record]]:
    """Yield each other release with what differs from its neighbour on the side of our own."""
    ordered = sorted(releases, key=numbers)
    newer, older = ordered[ordered.index(own) :], ordered[: ordered.index(own) + 1][::-1]
    for side in (newer, older):
        for neighbour, version in pairwise(side):
            yield version, differences(releases[neighbour], releases[version])


def differences(known: Record, other: Record) -> Record:
    """Return what to change in a record to have another one."""
    found: Record = {}
    for table in known.keys() - {"engine", "version"}:
        before, after = known[table], other[table]
        if isinstance(before, list):
            lists = [sorted({*after} - {*before}), sorted({*before} - {*after})]
            changed: Any = lists if any(lists) else None
        else:
            changed = dict.fromkeys(name for name in before if name not in after) | {
                name: each
                for name, each in after.items()
                if _compared(table, before.get(name)) != _compared(table, each)
            }
        if changed:
            found[table] = changed
    return dict(sorted(found.items()))


def _compared(table: str, value: Any) -> Any:
    """Return what counts of an argument: its type and flag; defaults are for people."""
    if table not in ("arguments", "server") or value is None:
        return value
    kind, _, *flag = value
    return {*kind.split(" | ")}, flag


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
