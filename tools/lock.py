"""Write the hashes of all files that the index has for each package of the locks: `make lock`.

python tools/lock.py

A lock's own lines say which versions; uv says their hashes, as `uv pip compile` writes them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import install

LOCKS = Path(__file__).resolve().parent.parent / "requirements"
_ENTRY = re.compile(r"^([\w.-]+)(==\S+)((?: \\\n +--hash=\S+)*)", re.MULTILINE)


def main() -> int:
    for path in sorted(LOCKS.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        made = hashed(text, _compiled(path))
        path.write_text(made, encoding="utf-8")
        sys.stdout.write(f"{path.name}: {made.count('--hash=')} hashes\n")
    return 0


def hashed(lock: str, compiled: str) -> str:
    """Return a lock with the hashes that uv has for its packages, by their names."""
    hashes = {_plain(name): rest for name, _, rest in _ENTRY.findall(compiled)}
    return _ENTRY.sub(lambda found: found[1] + found[2] + hashes[_plain(found[1])], lock)


def _compiled(path: Path) -> str:
    uv = install.ROOT / ".cache" / install.UV / "bin" / "uv"
    words = ["--no-deps", "--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
    words += ["--upgrade", "--python", sys.executable, str(path)]
    return subprocess.run(
        [str(uv), "pip", "compile", *words], capture_output=True, text=True, check=True
    ).stdout


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
