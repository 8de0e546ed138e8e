import pytest

from lmi_backend.options.versions import is_later, order_of

RELEASES = [
    "1.0.0", "1.2.1", "1.3.0a1", "1.3.0rc5.post2", "1.3.0rc20", "1.3.0rc22", "1.3.0rc22.post1",
    "1.3.0", "1.3.0.post1", "1.3.1", "1.4.0rc1", "1.10",
]  # fmt: skip


def test_releases_are_ordered_as_they_came() -> None:
    orders = [order_of(release) for release in RELEASES]
    assert None not in orders
    assert sorted(orders) == orders  # type: ignore[type-var]
    assert len(set(orders)) == len(RELEASES)


@pytest.mark.parametrize(("one", "other"), [("1.3", "1.3.0"), ("v1.3.0", "1.3.0+cu130")])
def test_the_same_release_has_several_spellings(one: str, other: str) -> None:
    assert order_of(one) == order_of(other)


@pytest.mark.parametrize(
    "text", ["", "main", "1.3.0.dev2026070100", "0.1.dev1+g12ab", "1." + "9" * 99]
)
def test_what_names_no_release_has_no_place(text: str) -> None:
    assert order_of(text) is None
    assert is_later(text, "1.3.0rc20") is None
