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
    ("version", "release"),
    [
        ("2.39.0", "23.10"),
        ("2.38.0", ""),
        ("2.51.0", "24.10"),
        ("2.53.0", "24.12"),
        ("2.54.0", "25.01"),
        ("2.59.0", "25.06"),
        ("2.59.1", "25.07"),  # the one release with a patch number
        ("2.60.0", "25.08"),
        ("2.71.0", "26.07"),
        ("2.75.0", "26.11"),
        ("2.51.0dev", "24.10"),
        ("2.51.1", ""),
        ("3.0.0", ""),
        ("2.51", ""),
        ("2.51.0.1", ""),
        ("", ""),
    ],
)
def test_a_version_is_a_release(version: str, release: str) -> None:
    assert release_name(version) == release


def test_the_release_for_fleets_is_the_first_that_is_safe() -> None:
    versions = [f"2.{minor}.0" for minor in range(39, 80)]
    assert next(release_name(v) for v in versions if not is_vulnerable(v)) == OLDEST_FOR_FLEETS


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.51.0", "Triton 24.10 (2.51.0) has published vulnerabilities (https://"),
        ("2.70.0", "Triton 26.06 (2.70.0) has published vulnerabilities (https://"),
        ("2.71.0", f"Triton 26.07 (2.71.0): no vulnerability published until {READ_UNTIL} is"),
        ("3.9.0", "Triton (3.9.0): no vulnerability published"),
        ("2.51.7", "Triton (2.51.7) has published vulnerabilities"),
        ("2.1.0", "Triton (2.1.0) has published vulnerabilities"),
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


@pytest.mark.parametrize(
    ("version", "numpy", "is_problem"),
    [
        ("2.51.0", "2.2.6", True),
        ("2.50.0", "2.0.0", True),
        ("2.51.0", "1.26.4", False),
        ("2.52.0", "2.2.6", False),
        ("", "2.2.6", False),
    ],
)
def test_a_server_before_24_11_cannot_serve_with_numpy_2(
    version: str, numpy: str, *, is_problem: bool
) -> None:
    problem = numpy_problem(version, numpy)
    assert bool(problem) == is_problem
    assert not is_problem or "pip install 'numpy<2'" in problem


@pytest.mark.parametrize(
    ("version", "is_shell"),
    [("2.51.0", True), ("2.59.1", True), ("2.60.0", False), ("2.71.0", False), ("", True)],
)
def test_a_server_before_25_08_starts_stubs_through_a_shell(
    version: str, *, is_shell: bool
) -> None:
    assert starts_stubs_by_shell(version) == is_shell
