"""Which releases are newer than those that were run."""

import pytest

from lmi_backend.options.releases import newer_than_run, newest_run, numbers
from lmi_backend.options.spec import SPECS

VLLM = SPECS["vllm"].implementation
NEWEST = newest_run("vllm")
MAJOR, MINOR, PATCH = numbers(NEWEST)


def test_the_newest_release_that_was_run_is_recorded() -> None:
    assert numbers(NEWEST) >= (0, 32, 0)
    assert newest_run("transformers") == ""
    assert numbers("1." + "9" * 5000) == (1, 999_999_999)


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
