"""Tell whether the models on disk were made by these very sources.

Nothing but the standard library is imported, so that asking costs nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

STAMP = "stamp.sha256"

_PACKAGE = Path(__file__).resolve().parent


def source_digest() -> str:
    """Return a SHA-256 over the names and contents of this tool's sources."""
    digest = hashlib.sha256()
    for path in (_PACKAGE.with_name("make_tiny_model.py"), *sorted(_PACKAGE.glob("*.py"))):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def is_current(folder: Path) -> bool:
    """Say whether `folder` holds what the sources would make again."""
    path = folder / STAMP
    return path.is_file() and path.read_text(encoding="ascii").strip() == source_digest()


def is_ours(folder: Path) -> bool:
    """Say whether `folder` may be replaced: it is missing, empty, or was made by this tool."""
    if not folder.exists():
        return True
    return folder.is_dir() and ((folder / STAMP).is_file() or not any(folder.iterdir()))


def write_stamp(folder: Path, digest: str) -> None:
    """Mark `folder` as made by the sources that had this digest when the work began."""
    (folder / STAMP).write_text(digest + "\n", encoding="ascii")
