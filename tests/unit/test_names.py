"""How long a name may be."""

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.names import HEADERS, HEADERS_BYTES, NAME_BYTES, check_headers, check_name


@pytest.mark.parametrize("name", ["", "a/b:c@d e", "ü" * (NAME_BYTES // 2), "a" * NAME_BYTES])
def test_a_name_is_taken(name: str) -> None:
    check_name("id", name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a" * (NAME_BYTES + 1), "is too long"),
        ("ü" * (NAME_BYTES // 2 + 1), "is too long"),
        ("a\tb", "has a control character"),
        ("\x7f", "has a control character"),
        ("a\ud800", "has a control character"),
    ],
)
def test_a_name_is_refused_with_the_bound(name: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem) as refusal:
        check_name("id", name)
    assert str(refusal.value).startswith("id ")
    assert f"accepted: at most {NAME_BYTES} bytes" in str(refusal.value)
    if problem == "is too long":
        check_name("id", name, most=2 * NAME_BYTES)


def test_headers_up_to_the_bounds_are_taken() -> None:
    check_headers({":method": "GET", "x-a": "a\tb", "x": "ü"})
    check_headers({f"x{number}": "" for number in range(HEADERS)})
    check_headers({"x": "v" * (HEADERS_BYTES - 1)})


@pytest.mark.parametrize(
    "headers",
    [
        {f"x{number}": "" for number in range(HEADERS + 1)},
        {"x": "v" * HEADERS_BYTES},
        {"": ""},
        {"a b": ""},
        {"x": "a\nb"},
    ],
    ids=["many", "large", "empty", "blank", "newline"],
)
def test_headers_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(RequestError):
        check_headers(headers)
