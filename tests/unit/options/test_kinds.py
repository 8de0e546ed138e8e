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


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("*", ["*"]),
        ("images.example, CDN.example.", ["images.example", "cdn.example"]),
        ("10.2.0.0/16,192.168.1.7", ["10.2.0.0/16", "192.168.1.7"]),
        ("169.253.255.255", ["169.253.255.255"]),
        ("fd00::1", ["fd00::1"]),
    ],
)
def test_hosts_and_networks_are_listed(text: str, hosts: list[str]) -> None:
    assert MEDIA_HOSTS.parse(text) == hosts


@pytest.mark.parametrize("text", ["0x7f.1", "a/b", "two words", "a,http://b.example", "1.2.3"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which is not a host's name"):
        MEDIA_HOSTS.parse(text)


@pytest.mark.parametrize(
    "text", ["169.254.169.254", "a.example,169.254.0.0/16", "fd00:ec2::254", "0.0.0.0", "ff02::1"]
)
def test_what_may_hand_out_keys_cannot_be_listed(text: str) -> None:
    with pytest.raises(ValueError, match="media are never fetched from"):
        MEDIA_HOSTS.parse(text)
