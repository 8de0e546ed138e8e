"""The GPUs of SageMaker's instance types: the number of them, and the GiB of each."""

from __future__ import annotations

from typing import Final, NamedTuple


class Gpus(NamedTuple):
    """What an instance has."""

    number: int
    gib: int
    """Memory of one."""


_ONE: Final = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_FAMILIES: Final[dict[str, tuple[int, dict[str, int]]]] = {
    "g4dn": (16, dict.fromkeys(_ONE, 1) | {"12xlarge": 4}),
    "g5": (24, dict.fromkeys(_ONE, 1) | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}),
    "g6": (24, dict.fromkeys(_ONE, 1) | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}),
    "g6e": (48, dict.fromkeys(_ONE, 1) | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}),
    "p3": (16, {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": (32, {"24xlarge": 8}),
    "p4d": (40, {"24xlarge": 8}),
    "p4de": (80, {"24xlarge": 8}),
    "p5": (80, {"4xlarge": 1, "48xlarge": 8}),
    "p5e": (141, {"48xlarge": 8}),
    "p5en": (141, {"48xlarge": 8}),
}
"""Of each family the GiB of a GPU, and the number of GPUs of each size."""


def gpus_of(instance: str) -> Gpus | None:
    """Return the GPUs of an instance type such as ml.g5.12xlarge; None for an unknown one."""
    family, _, size = instance.removeprefix("ml.").partition(".")
    gib, sizes = _FAMILIES.get(family, (0, {}))
    return Gpus(sizes[size], gib) if size in sizes else None
