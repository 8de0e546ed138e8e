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
