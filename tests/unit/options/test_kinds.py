import math

import pytest

from lmi_backend.options.kinds import (
    BOOL,
    JSON,
    PAIRS,
    WEIGHTS,
    Kind,
    choice,
    degree,
    number,
    whole,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOL, "true", True),
        (BOOL, "FALSE", False),
        (BOOL, "1", True),
        (BOOL, "off", False),
        (whole(1), "7", 7),
        (number(0, 1), "0.5", 0.5),
        (degree(), "MAX", "max"),
        (degree(), "4", 4),
        (choice("auto", fp16="float16"), "FP16", "float16"),
        (JSON, '{"a": [1]}', {"a": [1]}),
        (PAIRS, "A=1,B=x=y", {"A": "1", "B": "x=y"}),
        (PAIRS, "", {}),
        (WEIGHTS, '{"gold": 4, "": 2}', {"gold": 4, "": 2}),
    ],
)
def test_what_is_read(kind: Kind[object], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (BOOL, "maybe", "truth value"),
        (BOOL, "", "truth value"),
        (whole(1), "0", "out of range"),
        (whole(1, 3), "4", "out of range"),
        (whole(1), "1.5", "whole number"),
        (number(0, 1), "2", "out of range"),
        (number(0), "-1", "out of range"),
        (number(0), str(math.nan), "out of range"),
        (number(0), "x", "not a number"),
        (degree(), "most", "whole number"),
        (choice("auto"), "none", "unknown"),
        (JSON, "{", "not JSON"),
        (JSON, "[]", "not a JSON object"),
        (PAIRS, "=1", "not NAME=VALUE"),
        (WEIGHTS, '{"a": 1, "b": 0}', 'has 0 for "b"'),
        (WEIGHTS, '{"a": 1.5}', 'has 1.5 for "a"'),
        (WEIGHTS, '{"a": true}', 'has true for "a"'),
        (WEIGHTS, "4", "not a JSON object"),
    ],
)
def test_what_is_refused(kind: Kind[object], text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind.parse(text)
