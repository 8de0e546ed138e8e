"""Releases of Triton by version, and what each is open to."""

from itertools import pairwise
from pathlib import Path

import pytest

from lmi_backend.supervisor.installation import find_server
from lmi_backend.supervisor.triton_release import (
    IN_WHEELS,
    KNOWN_UNTIL,
    NEWEST_RELEASE,
    OLDEST_FOR_FLEETS,
    RELEASES,
    VULNERABILITIES,
    describe,
    installed_version,
    known_vulnerabilities,
    numpy_problem,
    release_name,
    starts_stubs_by_shell,
)


def _cves(version: str) -> set[str]:
    return {each.cve for each in known_vulnerabilities(version)}


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("2.51.0", "24.10"),
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


def test_releases_follow_each_other() -> None:
    numbers = [tuple(map(int, version.split("."))) for version in RELEASES]
    assert numbers == sorted(set(numbers))
    months = [int(name[:2]) * 12 + int(name[3:]) - 1 for name in RELEASES.values()]
    assert all(later == earlier + 1 for earlier, later in pairwise(months))


def test_the_table_of_vulnerabilities_is_whole() -> None:
    assert len({each.cve for each in VULNERABILITIES}) == len(VULNERABILITIES)
    order = list(RELEASES.values())
    places = [order.index(each.fixed) for each in VULNERABILITIES]
    assert places == sorted(places)
    assert all(not each.since or each.since in order for each in VULNERABILITIES)
    assert all(0 < each.score <= 10 for each in VULNERABILITIES)
    assert all(each.source.endswith(f"/{each.bulletin}") for each in VULNERABILITIES)
    assert all(each.weakness and each.effect for each in VULNERABILITIES)


def test_the_embedded_server_is_open_to_what_was_shown_on_it() -> None:
    shown = {"CVE-2025-23310", "CVE-2025-23311", "CVE-2025-23319", "CVE-2025-23320"}
    shown |= {"CVE-2025-23334", "CVE-2026-24206", "CVE-2026-24207"}
    for version in IN_WHEELS.values():
        assert shown <= _cves(version)
    # Fixed before it, and come only after it.
    assert not {"CVE-2024-0116", "CVE-2024-53880"} & _cves("2.51.0")
    assert "CVE-2024-53880" in _cves("2.52.0")
    assert "CVE-2024-0116" in _cves("2.49.0")


def test_a_fix_ends_a_hole_at_its_release() -> None:
    assert "CVE-2025-23310" in _cves("2.59.0")
    assert "CVE-2025-23310" not in _cves("2.59.1")
    assert "CVE-2025-23310" in _cves("1.0.0")


def test_a_fleet_needs_the_first_release_without_a_known_vulnerability() -> None:
    versions = list(RELEASES)
    first = next(version for version in versions if not known_vulnerabilities(version))
    assert RELEASES[first] == OLDEST_FOR_FLEETS
    assert known_vulnerabilities(versions[versions.index(first) - 1])


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.51.0", "Triton 24.10 (2.51.0) is open to 58 published vulnerabilities, fixed in"),
        ("2.70.0", "Triton 26.06 (2.70.0) is open to CVE-2026-16497, fixed in 26.07; use 26.07"),
        (
            "2.71.0",
            f"Triton 26.07 (2.71.0): no vulnerability published until {KNOWN_UNTIL} is",
        ),
        (
            "2.99.0",
            f"Triton later than {NEWEST_RELEASE} (2.99.0): no vulnerability published",
        ),
        ("2.51.7", "Triton later than 24.10 (2.51.7) is open to 58 published vulnerabilities"),
        ("2.1.0", "Triton before 23.10 (2.1.0) is open to 65 published vulnerabilities, fixed in"),
        ("moon", "Triton 'moon': not a version such as 2.71.0, so nothing is known of it"),
    ],
)
def test_what_is_said_of_a_server(version: str, message: str) -> None:
    assert describe(version).startswith(message)


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
