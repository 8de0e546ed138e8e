"""An engine is said once, and everything knows it."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import lmi_backend
from lmi_backend.options.spec import COMMON_SCOPES, SPECS
from lmi_backend.options.table import ENGINES, KEYS, OPTIONS

PACKAGE = Path(lmi_backend.__file__).parent
# Where a client's body or model, not an engine, is called so.
CLIENTS = ("clients", "repository")


def test_no_two_engines_share_a_word_or_a_place() -> None:
    specs = SPECS.values()
    assert len({spec.order for spec in specs}) == len(specs)
    words = Counter(
        word
        for spec in specs
        for word in (
            ("rolling_batch", spec.rolling_batch),
            ("engine", spec.engine_word),
            ("feature", spec.feature),
            *(("entryPoint", handler) for handler in spec.entry_points),
        )
        if word[1]
    )
    assert [word for word, count in words.items() if count > 1] == []
    assert len([spec for spec in specs if spec.unbatched]) == 1


def test_every_group_of_options_is_read_by_an_engine() -> None:
    for option in OPTIONS:
        assert option.engines, f"{option.name}: no engine reads options of {option.scope!r}"
        assert (option.engines == ENGINES) == (option.scope in COMMON_SCOPES)


@pytest.mark.parametrize("name", SPECS)
def test_an_engine_speaks_of_options_that_there_are(name: str) -> None:
    spec = SPECS[name]
    given = (spec.utilization_option, spec.length_option, spec.block_option)
    # The last two have defaults, which an engine without such an option leaves.
    named = {*spec.unused, *spec.implementation.arguments, *filter(None, given)}
    assert not named - set(KEYS)
    common = {option.name for option in OPTIONS if option.scope in COMMON_SCOPES}
    assert set(spec.implementation.arguments) <= common


def test_nothing_else_asks_for_an_engine_by_its_name() -> None:
    asking = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in (*CLIENTS, "engines")
        and "table" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in SPECS
    ]
    assert asking == []
