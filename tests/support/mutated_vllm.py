"""A copy of an engine's environment whose vLLM has other Python files; all else are links."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

PACKAGE: Final = "vllm"
HELPERS: Final = "mutation_helpers"
"""Module of the copy that has what mutations call."""


class Tree:
    """The Python files of one vLLM, some of them changed, in memory.

    Args:
        folder: of the package.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._original = _texts(folder)
        self.changed: dict[str, str] = {}
        """Path below the package to its text."""
        self.moved: dict[str, str] = {}
        """Module, or package, to its new path; both below the package and without suffix."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._original)

    def __getitem__(self, path: str) -> str:
        return self.changed.get(path) or self._original[path]

    def __setitem__(self, path: str, text: str) -> None:
        if text != self[path]:
            self.changed[path] = text

    def path_of(self, module: str) -> str:
        """Return the path of a module by its dotted name."""
        below = module.replace(".", "/").removeprefix(f"{PACKAGE}/")
        return below + ".py" if below + ".py" in self._original else f"{below}/__init__.py"

    def with_word(self, word: str) -> list[str]:
        """Return the files that have a word."""
        found = re.compile(rf"\b{re.escape(word)}\b")
        return [path for path in self if word in self[path] and found.search(self[path])]

    def replace(self, pattern: str, new: str, paths: Iterable[str] = ()) -> int:
        """Replace an expression in these files, or all; return how often it was there."""
        compiled, count = re.compile(pattern), 0
        for path in paths or self:
            self[path], each = compiled.subn(new, self[path])
            count += each
        return count

    def where(self, path: str) -> str:
        """Return the path of a file in the copy."""
        for old, new in self.moved.items():
            if path == f"{old}.py" or path.startswith(f"{old}/"):
                return new + path[len(old) :]
        return path


@lru_cache(maxsize=2)
def _texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def package_of(environment: Path) -> Path:
    """Return the folder of vLLM in an environment."""
    return next(environment.glob(f"lib/python3.*/site-packages/{PACKAGE}"))


def write(tree: Tree, environment: Path, folder: Path) -> Path:
    """Write the environment of a changed tree; return its interpreter.

    Args:
        environment: that the tree is of.
    """
    packages = package_of(environment).parent
    own = folder / packages.relative_to(environment)
    own.mkdir(parents=True)
    shutil.copyfile(environment / "pyvenv.cfg", folder / "pyvenv.cfg")
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to((environment / "bin" / "python").resolve())
    for path in packages.iterdir():
        if path.name not in (PACKAGE, "__pycache__"):
            (own / path.name).symlink_to(path)
    _write_package(tree, own / PACKAGE)
    return folder / "bin" / "python"


def _write_package(tree: Tree, own: Path) -> None:
    sources = set(tree)
    changed = {PurePosixPath(path) for path in tree.changed}
    for path in sorted(tree.folder.rglob("*")):
        below = path.relative_to(tree.folder).as_posix()
        target = own / tree.where(below)
        if path.is_dir():
            if path.name != "__pycache__" or any(path.iterdir()):
                target.mkdir(parents=True, exist_ok=True)
        elif below in tree.changed:
            _make(target).write_text(tree.changed[below], encoding="utf-8")
        elif path.parent.name != "__pycache__" or not _is_stale(tree, below, sources, changed):
            _make(target).symlink_to(path)
    shutil.copyfile(Path(__file__).with_name(f"{HELPERS}.py"), own / f"{HELPERS}.py")


def _is_stale(tree: Tree, below: str, sources: set[str], changed: set[PurePosixPath]) -> bool:
    """Tell whether bytecode is of a file that is changed or moved."""
    path = PurePosixPath(below)
    source = path.parent.parent / (path.name.partition(".")[0] + ".py")
    return source in changed or tree.where(str(source)) != str(source) or str(source) not in sources


def _make(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
