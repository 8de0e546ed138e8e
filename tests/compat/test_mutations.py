"""What vLLM may change of what is held inside it, read from its source before it is imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lmi_backend.engines.vllm.inside import names, present
from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from tests.support.mutated_meanings import mutations
from tests.support.mutated_vllm import Tree, package_of, write
from tests.support.mutation_sources import changed, installed
from tests.support.mutations import NEW, Mutation, bare
from tests.support.places import ENGINE_PYTHON

ENVIRONMENT = ENGINE_PYTHON.parent.parent.resolve()
MUTATIONS = {each.name: each for each in mutations(package_of(ENVIRONMENT))}
REQUIRED = "a required parameter"
TEXTS = {bare(text): text for entry in (*PATHS, *NEEDS) for text in entry.names}
"""Names as the tables have them."""


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with vLLM as it is, of links."""
    folder = tmp_path_factory.mktemp("copy") / "environment"
    write(Tree(package_of(ENVIRONMENT)), ENVIRONMENT, folder)
    return folder


def lacking(copy: Path, mutation: Mutation) -> list[str]:
    """Return what the probe of vLLM's source says of the name that a mutation changes."""
    with changed(ENVIRONMENT, copy, mutation) as source, installed(source):
        return present.missing([TEXTS[mutation.key]])


def missed(key: str) -> list[str]:
    """Return what is missed where a name is gone: nothing if it serves without."""
    first = names.NAMES[key.partition(".")[0]]
    is_spared = TEXTS[key].endswith("?") or ("." not in key and first.instead is not ...)
    return [] if is_spared else [key]


def of_kind(*kinds: str) -> list[str]:
    """Return each tenth of them. `make compat COMPAT=--mutations` serves with every one."""
    return [name for name, each in MUTATIONS.items() if each.kind in kinds][::10]


@pytest.mark.parametrize("name", of_kind("removed"))
def test_a_name_that_is_gone_is_missed_before_vllm_is_imported(copy: Path, name: str) -> None:
    key = MUTATIONS[name].key
    assert lacking(copy, MUTATIONS[name]) == missed(key)


@pytest.mark.parametrize(
    "name", [each for each in of_kind(REQUIRED) if "(" in TEXTS[MUTATIONS[each].key]]
)
def test_an_argument_that_is_newly_asked_for_is_named(copy: Path, name: str) -> None:
    key = MUTATIONS[name].key
    assert lacking(copy, MUTATIONS[name]) == [f"{key} (which requires {NEW})"]


@pytest.mark.parametrize("name", of_kind("moved"))
def test_a_name_is_found_where_it_has_moved(copy: Path, name: str) -> None:
    key = MUTATIONS[name].key
    with changed(ENVIRONMENT, copy, MUTATIONS[name]) as source, installed(source):
        assert present.missing([TEXTS[key]]) == []
        module, home = names.homes(key.partition(".")[0])[0]
        assert source.has_module(module) if home == "*" else source.definition(module, home)


# `make compat COMPAT=--mutations` makes all of them.
ONE_OF_EACH = {each.kind: name for name, each in MUTATIONS.items()}


@pytest.mark.parametrize("name", ONE_OF_EACH.values())
def test_a_mutation_changes_vllm_and_leaves_python(name: str) -> None:
    tree = Tree(package_of(ENVIRONMENT))
    MUTATIONS[name].apply(tree)
    assert tree.changed or tree.moved
    for path, text in tree.changed.items():
        ast.parse(text, path)
