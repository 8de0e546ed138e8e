"""Releases of Triton by version, and what is said of each."""

from pathlib import Path

import pytest

from lmi_backend.supervisor.installation import (
    OLDEST_FOR_FLEETS,
    READ_UNTIL,
    describe,
    find_server,
    installed_version,
    is_vulnerable,
    numpy_problem,
    release_name,
    starts_stubs_by_shell,
)


@pytest.mark.parametrize(
    ("version", "release", "is_shell"),
    [
        ("2.39.0", "23.10", True),
        ("2.38.0", "", True),
        ("2.51.0dev", "24.10", True),
        ("2.54.0", "25.01", True),
        ("2.59.0", "25.06", True),
        ("2.59.1", "25.07", True),  # the one release with a patch number
        ("2.60.0", "25.08", False),
        ("2.75.0", "26.11", False),
        ("2.51.1", "", True),
        ("3.0.0", "", False),
        ("2.51.0.1", "", True),
        ("", "", True),
    ],
)
def test_a_version_is_a_release(version: str, release: str, *, is_shell: bool) -> None:
    assert release_name(version) == release
    assert starts_stubs_by_shell(version) == is_shell


def test_the_release_for_fleets_is_the_first_that_is_safe() -> None:
    versions = [f"2.{minor}.0" for minor in range(39, 80)]
    assert next(release_name(v) for v in versions if not is_vulnerable(v)) == OLDEST_FOR_FLEETS


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.51.0", "Triton 24.10 (2.51.0) has published vulnerabilities (https://"),
        ("2.71.0", f"Triton 26.07 (2.71.0): no vulnerability published until {READ_UNTIL} is"),
        ("3.9.0", "Triton (3.9.0): no vulnerability published"),
        ("2.51.7", "Triton (2.51.7) has published vulnerabilities"),
        ("moon", "Triton 'moon': not a version such as 2.71.0, so nothing is known of it"),
    ],
)
def test_what_is_said_of_a_server(version: str, message: str) -> None:
    line = describe(version)
    assert line.startswith(message)
    assert line.endswith(f"; use {OLDEST_FOR_FLEETS} or later") == is_vulnerable(version)


def test_what_a_server_reports_is_cut_before_it_is_said() -> None:
    assert len(describe("x" * 1_000_000)) < 200
    assert "\n" not in describe("2.5\n1.0")


def test_the_installed_server_is_known_without_running_it(tmp_path: Path) -> None:
    server = find_server(tmp_path)
    assert release_name(installed_version(server.binary)) == "24.10"


def test_an_image_says_its_version_beside_the_programs(tmp_path: Path) -> None:
    binary = tmp_path / "bin" / "tritonserver"
    assert installed_version(binary) == ""
    (tmp_path / "TRITON_VERSION").write_text("2.71.0\n")
    assert installed_version(binary) == "2.71.0"


def test_a_server_before_24_11_cannot_serve_with_numpy_2() -> None:
    problems = [numpy_problem(version, "2.2.6") for version in ("2.51.0", "2.52.0", "")]
    assert [*map(bool, problems)] == [True, False, False]
    assert not numpy_problem("2.51.0", "1.26.4")
