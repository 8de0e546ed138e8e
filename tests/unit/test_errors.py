"""The tree of errors, and what each says."""

import re

import pytest

from lmi_backend import errors
from lmi_backend.errors import LmiError, OptionError, RequestError

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, LmiError)]
CODES = {"INTERNAL", "INVALID_ARG", "UNAVAILABLE", "CANCELLED"}


def test_the_drawing_is_the_tree() -> None:
    drawing = [re.match(r"[\s│├└─]*(\w+Error)\b", line) for line in errors.__doc__.splitlines()]
    drawn = {match[1]: match.start(1) // 4 for match in drawing if match}
    assert drawn == {c.__name__: c.__mro__.index(LmiError) + 1 for c in CLASSES}


def test_every_error_has_a_code_of_triton_and_says_what_it_is() -> None:
    assert [c.__name__ for c in CLASSES if c.code not in CODES or not c.__doc__] == []


def test_a_request_may_be_tried_again_when_only_the_server_is_to_blame() -> None:
    assert {c.__name__ for c in CLASSES if c.retryable} == {
        "DeadlineError",
        "EngineDeadError",
        "LateError",
        "LaterError",
        "LoadingError",
        "StoppingError",
        "UnavailableError",
    }


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"value": "1", "accepted": "2"}, "f:3: option.a=1 is bad; accepted: 2"),
        ({"value": "1"}, "f:3: option.a=1 is bad"),
        ({}, "f:3: option.a is bad"),
    ],
)
def test_an_option_error_says_what_where_and_what_instead(
    details: dict[str, str], text: str
) -> None:
    error = OptionError("is bad", option="option.a", origin="f:3", **details)
    assert str(error) == text
    assert f"f:3: {error.option}{'=1' if details else ''} {error.problem}" == text


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"value": 1, "accepted": "2"}, "n 1 is bad; accepted: 2"),
        ({"value": "x"}, "n 'x' is bad"),
        ({"value": 0}, "n 0 is bad"),
        ({"value": None}, "n is bad"),
    ],
)
def test_a_request_error_says_what_and_what_instead(details: dict[str, object], text: str) -> None:
    error = RequestError("is bad", field="n", **details)  # type: ignore[arg-type]
    assert str(error) == text
    assert f"{error.field} {error.detail}" == text


def test_a_long_value_is_shortened_and_its_length_told() -> None:
    text = str(RequestError("is bad", field="inputs", value="x" * 500))
    assert len(text) < 200
    assert "… (502 characters) is bad" in text
