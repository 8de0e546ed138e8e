"""The architectures that a config.json names."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.sizing.architectures import read_architectures, read_served_architectures
from lmi_backend.sizing.config_fields import ConfigFields


def fields(outer: dict[str, Any], **own: Any) -> ConfigFields:
    return ConfigFields(Path("config.json"), own or outer, outer)


@pytest.mark.parametrize(
    ("outer", "named", "served"),
    [
        ({"architectures": ["A"]}, ("A",), ("A",)),
        ({}, (), ()),
        ({"architectures": ["A"], "speculators_config": {}}, ("A",), ()),
        (
            {"architectures": ["A"], "speculators_config": {"verifier": {"architectures": ["B"]}}},
            ("A",),
            ("B",),
        ),
        ({"architectures": ["A"], "speculators_config": {"verifier": {}}}, ("A",), ()),
    ],
)
def test_a_draft_is_served_as_the_model_that_it_drafts_for(
    outer: dict[str, Any], named: tuple[str, ...], served: tuple[str, ...]
) -> None:
    assert read_architectures(fields(outer)) == named
    assert read_served_architectures(fields(outer)) == served


def test_the_files_own_come_before_those_of_the_model_inside() -> None:
    assert read_architectures(fields({"architectures": ["A"]}, architectures=["B"])) == ("A",)
    assert read_architectures(fields({}, architectures=["B"])) == ("B",)


@pytest.mark.parametrize("named", ["A", [1], {"A": 1}])
def test_what_is_no_list_of_names_is_refused(named: object) -> None:
    with pytest.raises(ConfigurationError):
        read_architectures(fields({"architectures": named}))
