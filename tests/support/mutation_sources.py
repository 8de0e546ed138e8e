"""What the source of a changed vLLM tells, before it is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from lmi_backend.engines.vllm.inside import names, present
from lmi_backend.engines.vllm.inside.source import Source
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from tests.support.mutated_vllm import Tree, package_of, write
from tests.support.mutation_runs import FOUND, KEYS, OFF, REFUSED, UNUSED
from tests.support.mutations import Mutation, bare


@contextmanager
def changed(original: Path, copy: Path, mutation: Mutation) -> Iterator[Source]:
    """Have the files of a copy of an environment changed meanwhile."""
    tree, package = Tree(package_of(original)), package_of(copy)
    mutation.apply(tree)
    for path, text in tree.changed.items():
        (package / path).unlink()
        (package / path).write_text(text, encoding="utf-8")
    _rename(package, tree.moved)
    try:
        yield Source(package)
    finally:
        _rename(package, {new: old for old, new in tree.moved.items()})
        for path in tree.changed:
            (package / path).unlink()
            (package / path).symlink_to(tree.folder / path)


def _rename(package: Path, moved: dict[str, str]) -> None:
    for old, new in moved.items():
        suffix = "" if (package / old).is_dir() else ".py"
        (package / f"{old}{suffix}").rename(package / f"{new}{suffix}")


@contextmanager
def installed(source: Source) -> Iterator[None]:
    """Have a source probed as that of the installed vLLM."""
    modules = (names, present)
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "installed", lambda: source))
        yield


def found_by_source(
    mutations: Sequence[Mutation], original: Path, folder: Path, *, with_fast_paths: bool
) -> dict[str, tuple[str, str]]:
    """Return the outcomes of mutations of what is needed, which need no start.

    Args:
        original: the environment.
        folder: where a copy is made.
        with_fast_paths: whether to say of what is held, too, what the source tells of it.
    """
    write(Tree(package_of(original)), original, folder)
    entries = [*PATHS, *NEEDS] if with_fast_paths else NEEDS
    texts = {bare(text): text for entry in entries for text in entry.names}
    found = {}
    for mutation in mutations:
        if (text := texts.get(mutation.key)) is None or (
            mutation.fast_paths and not with_fast_paths
        ):
            continue
        with changed(original, folder, mutation) as source, installed(source):
            lacking = present.missing([text])
        if lacking and mutation.fast_paths:
            found[mutation.name] = (OFF, f"it lacks {', '.join(lacking)}")
        elif lacking:
            found[mutation.name] = (REFUSED, f"before it is loaded: it lacks {', '.join(lacking)}")
        elif KEYS[mutation.key].name in UNUSED or (with_fast_paths and mutation.kind == "moved"):
            found[mutation.name] = (FOUND, "not started")
    return found
