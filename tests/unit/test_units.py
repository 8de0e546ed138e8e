import pytest

from lmi_backend.units import GIB, human_bytes


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (-3 * GIB, "-3.0 GiB"),
        (round(141.1 * GIB), "141.1 GiB"),
        (5 * 1024**6, "5120.0 PiB"),
    ],
)
def test_bytes_are_shown_in_a_fitting_unit(count: int, shown: str) -> None:
    assert human_bytes(count) == shown
