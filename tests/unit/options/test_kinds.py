"""What each type of option reads, hosts of media among them."""

import math

import pytest

from lmi_backend.options.kinds import (
    BOOL,
    JSON,
    MEDIA_HOSTS,
    PAIRS,
    WEIGHTS,
    Kind,
    choice,
    degree,
    number,
    whole,
)

NO_HOST = "which is not a host's name"
NEVER = "media are never fetched from"


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
        (MEDIA_HOSTS, "*", ["*"]),
        (MEDIA_HOSTS, "images.example, CDN.example.", ["images.example", "cdn.example"]),
        (MEDIA_HOSTS, "10.2.0.0/16,192.168.1.7", ["10.2.0.0/16", "192.168.1.7"]),
        (MEDIA_HOSTS, "169.253.255.255", ["169.253.255.255"]),
        (MEDIA_HOSTS, "fd00::1", ["fd00::1"]),
    ],
)
def test_what_is_read(kind: Kind[object], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (BOOL, "maybe", "truth value"),
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
        (MEDIA_HOSTS, "0x7f.1", NO_HOST),
        (MEDIA_HOSTS, "a/b", NO_HOST),
        (MEDIA_HOSTS, "two words", NO_HOST),
        (MEDIA_HOSTS, "a,http://b.example", NO_HOST),
        (MEDIA_HOSTS, "1.2.3", NO_HOST),
        # What may hand out keys.
        (MEDIA_HOSTS, "169.254.169.254", NEVER),
        (MEDIA_HOSTS, "a.example,169.254.0.0/16", NEVER),
        (MEDIA_HOSTS, "fd00:ec2::254", NEVER),
        (MEDIA_HOSTS, "0.0.0.0", NEVER),
        (MEDIA_HOSTS, "ff02::1", NEVER),
    ],
)
def test_what_is_refused(kind: Kind[object], text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind.parse(text)
