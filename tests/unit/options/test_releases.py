"""The order of releases, and which are newer than those that were run."""

import pytest

from lmi_backend.options.releases import is_later, newer_than_run, newest_run, numbers, order_of
from lmi_backend.options.spec import SPECS

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


VLLM = SPECS["vllm"].implementation
NEWEST = newest_run("vllm")
MAJOR, MINOR, PATCH = numbers(NEWEST)


def test_the_newest_release_that_was_run_is_recorded() -> None:
    assert numbers(NEWEST) >= (0, 32, 0)
    assert newest_run("transformers") == ""


@pytest.mark.parametrize(
    "version",
    [
        f"{MAJOR}.{MINOR + 1}.0",
        f"{MAJOR}.{MINOR}.{PATCH + 1}",
        f"{MAJOR}.{MINOR + 1}.0rc1",
        f"{MAJOR}.{MINOR + 1}.0.dev12+g12ab",
        f"{MAJOR + 1}.0",
    ],
)
def test_a_newer_release_is_said_with_the_newest_that_was_run(version: str) -> None:
    note = newer_than_run(VLLM, f"{version}+cpu".replace("ab+cpu", "ab"))
    shown = version.partition("+")[0]
    assert note.startswith(f"vLLM {shown} is newer than {NEWEST}, the newest that was run: not run")
    assert newer_than_run(VLLM, version, "3 of 4 fast paths hold").endswith(
        "that was run: 3 of 4 fast paths hold"
    )


@pytest.mark.parametrize(
    "version",
    [
        NEWEST,
        f"{NEWEST}.post2",
        f"{MAJOR}.{MINOR}",
        "0.11.0",
        "0.1.dev1+g12ab",
        "",
    ],
)
def test_of_any_other_nothing_is_said(version: str) -> None:
    assert newer_than_run(VLLM, version) == ""
    assert newer_than_run(SPECS["echo"].implementation, version) == ""
