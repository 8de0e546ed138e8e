import re
from collections import Counter

import pytest

from lmi_backend.options import OPTIONS
from lmi_backend.options.option import Option
from lmi_backend.options.table import ENGINES, KEYS, VARIABLES, find_option


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_has_one_row_under_an_engine(engine: str) -> None:
    for key, rows in KEYS.items():
        found = [row for row in rows if engine in row.engines]
        best = [row for row in found if len(row.engines) == len(found[0].engines)]
        assert len(best) <= 1, key
        assert find_option(key, engine) in (*best, None)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_variable_means_two_options_under_an_engine(engine: str) -> None:
    live = [row for row in OPTIONS if row is find_option(row.name, engine)]
    names = Counter(name for row in live for name in (row.variable, *row.env, *row.inverse_env))
    assert [name for name, count in names.items() if count > 1] == []
    assert not set(names) & set(VARIABLES) - {"SERVING_LOAD_MODELS"}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.scope}-{option.name}")
def test_every_row_is_whole(option: Option[object]) -> None:
    assert option.help.endswith((".", ")"))
    assert option.kind.accepted
    assert (option.status == "mapped") == (option.reason == "")
    for engine in option.engines:
        assert option.status_under(engine).detail


def test_defaults_are_of_the_kind_they_document() -> None:
    for option in OPTIONS:
        for default in (option.default, option.lmi_default):
            if default not in ("", 0, {}, 0.0, None, []) and not isinstance(default, list):
                assert option.kind.parse(str(default)) == default


def test_a_reason_is_a_phrase_that_help_can_end_with_a_stop() -> None:
    ended = [option for option in OPTIONS if option.status != "mapped"]
    assert {option.status for option in ended} == {"ignored", "refused"}
    for option in ended:
        assert option.reason == option.reason.strip().rstrip(".")
        assert option.help == f"{option.status.capitalize()}: {option.reason}."


def test_what_an_ended_option_points_to_is_not_ended_too() -> None:
    for option in OPTIONS:
        for key in re.findall(r"option\.\w+", option.reason):
            row = find_option(key, option.engines[0])
            assert row is None or row.status == "mapped", option.name
