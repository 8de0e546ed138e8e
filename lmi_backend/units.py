"""Sizes in bytes."""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(count: float) -> str:
    """Return a number of bytes for people, for example "141.1 GiB"."""
    size, unit = float(count), 0
    # Rounded as it will be shown: 1023.96 KiB is 1.0 MiB.
    while round(abs(size), 1) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
