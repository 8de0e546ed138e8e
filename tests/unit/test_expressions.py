"""Regular expressions of the package: each is linear, whatever text it is given."""

import re

import pytest

from tests.support.expressions import Use, slow_on, uses

FOUND, MADE = uses()


@pytest.mark.parametrize("use", FOUND, ids=[f"{use.place[:60]} {use.method}" for use in FOUND])
def test_an_expression_is_linear(use: Use) -> None:
    text = slow_on(use)
    assert text is None, f"{use.place}.{use.method} takes long on {text!r}"


def test_those_made_as_they_run_are_known() -> None:
    """Their texts are our own words, or are escaped; they are not given to a client's text."""
    assert [place.partition(": re.")[0] for place in MADE] == [
        "lmi_backend.engines.vllm.inside.source",
        "lmi_backend.engines.vllm.inside.source",
        "lmi_backend.extras",
        "lmi_backend.pool.diagnosis",
        "lmi_backend.redaction",
    ]


@pytest.mark.parametrize(
    "expression",
    [
        r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/",
        r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}",
        r"\[\^?(?:\\.|[^\]\\])*\]",
        r"(a+)+b",
        r"(\w+\s?)*$",
        r"(^|_)(max|min)_(\w+_)?token$",
        r"\s+$",
    ],
)
def test_one_that_is_not_linear_is_found(expression: str) -> None:
    assert slow_on(Use("", re.compile(expression), "search")) is not None


def test_patterns_of_clients_texts_are_among_them() -> None:
    places = {use.place.partition(" ")[0] for use in FOUND}
    modules = (
        "frontend.http.hosts._HOST",
        "names._CONTROLS",
        "repeats._REPETITION",
        "redaction._KEYS",
    )
    assert {f"lmi_backend.{name}" for name in modules} <= places
