import re
from collections import Counter

import pytest

from lmi_backend.options import OPTIONS
from lmi_backend.options.option import Option
from lmi_backend.options.table import BY_KEY


def test_no_key_is_declared_twice() -> None:
    keys = Counter(key for option in OPTIONS for key in (option.name, *option.aliases))
    assert [key for key, count in keys.items() if count > 1] == []
    assert set(BY_KEY) == set(keys)


def test_no_variable_means_two_options() -> None:
    variables = Counter(option.variable for option in OPTIONS)
    assert [name for name, count in variables.items() if count > 1] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_row_is_whole(option: Option[object]) -> None:
    assert option.help.endswith((".", ")"))
    assert option.kind.accepted
    assert (option.fate == "mapped") == (option.reason == "")


def test_defaults_are_of_the_kind_they_document() -> None:
    for option in OPTIONS:
        if option.default not in ("", 0, {}, 0.0, None):
            assert option.kind.parse(str(option.default)) == option.default


def test_bare_variables_belong_to_one_option() -> None:
    names = Counter(name for option in OPTIONS for name in (option.variable, *option.env))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_reason_is_a_phrase_that_help_can_end_with_a_stop() -> None:
    ended = [option for option in OPTIONS if option.fate != "mapped"]
    assert {option.fate for option in ended} == {"ignored", "refused"}
    for option in ended:
        assert option.reason == option.reason.strip().rstrip(".")
        assert option.help == f"{option.fate.capitalize()}: {option.reason}."


def test_what_an_ended_option_points_to_is_not_ended_too() -> None:
    for option in OPTIONS:
        for key in re.findall(r"option\.\w+", option.reason):
            assert key not in BY_KEY or BY_KEY[key].fate == "mapped", option.name
