import math
from typing import Any

import pytest

from lmi_backend.clients.values import (
    BOOLEAN,
    INTEGERS,
    SEED,
    STRING,
    STRINGS,
    TOKEN_WEIGHTS,
    Value,
    integer,
    number,
    read_value,
)
from lmi_backend.errors import RequestError


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (integer(), True, "is not a whole number"),
        (integer(), 1.0, "is not a whole number"),
        (integer(), "1", "is not a whole number"),
        (integer(0), -1, "is too small; accepted: a whole number, 0 or more"),
        (number(0), True, "is not a number"),
        (number(0), "1", "is not a number"),
        (number(-2, 2), 2.1, "is out of range; accepted: a number, -2 to 2"),
        (number(0, 1), math.inf, "is out of range"),
        (number(0), math.nan, "is out of range; accepted: a number, 0 or more"),
        (number(0, above=True), 0, "is out of range; accepted: a number, above 0"),
        (BOOLEAN, 1, "is not true or false; accepted: true or false"),
        (BOOLEAN, "true", "is not true or false"),
        (STRING, 1, "is not a string; accepted: a string"),
        (STRINGS, ["a", 1], "is not a list of strings; accepted: a string or a list of strings"),
        (STRINGS, {"a": 1}, "is not a list of strings"),
        (INTEGERS, [1, True], "is not a list of whole numbers"),
        (INTEGERS, "1", "is not a list of whole numbers; accepted: a list of whole numbers"),
        (SEED, 1.5, "is not a whole number; accepted: a whole number"),
        (TOKEN_WEIGHTS, [1], "is not an object; accepted: an object of token id to number"),
    ],
)
def test_what_is_refused(kind: Value, given: Any, problem: str) -> None:
    with pytest.raises(RequestError) as refusal:
        read_value(kind, "the_field", given)
    assert str(refusal.value).startswith(f"the_field {given!r} {problem}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (integer(1), "7", 7),
        (number(0), "0.5", 0.5),
        (number(0), "1", 1.0),
        (BOOLEAN, "True", True),
        (BOOLEAN, "False", False),
        (BOOLEAN, "true", True),
        (STRINGS, '["a"]', ("a",)),
        (STRINGS, "a", ("a",)),
        (STRINGS, "5", ("5",)),
        (STRINGS, '"', ('"',)),
        (STRINGS, '"a"', ('"a"',)),
        (integer(1), 7.0, 7),
        (BOOLEAN, 1, True),
        (STRING, "5", "5"),
        (INTEGERS, "[1, 2]", (1, 2)),
        (TOKEN_WEIGHTS, '{"5": 1}', {5: 1.0}),
    ],
)
def test_text_may_stand_for_a_value_where_the_vllm_backend_takes_it(
    kind: Value, text: object, value: object
) -> None:
    assert read_value(kind, "field", text, is_text=True) == value


@pytest.mark.parametrize(
    ("kind", "text"), [(integer(1), "seven"), (integer(1), "0"), (number(0), ""), (BOOLEAN, "2")]
)
def test_text_that_stands_for_nothing_is_shown_as_given(kind: Value, text: str) -> None:
    with pytest.raises(RequestError, match=f"^field {text!r} is .*; accepted: {kind.accepted}"):
        read_value(kind, "field", text, is_text=True)
