"""The GPUs of SageMaker's instance types, and what else those have that have no GPU.

Numbers and kinds are those of EC2's DescribeInstanceTypes, as Karpenter's documentation had them on
2026-08-21, of p6e-gb200 those of AWS's announcement. EC2's memory is the maker's: 22,888 MiB of an
A10G are 24 GB. CUDA has less, and a plan counts with that: plan/known_gpus.py.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Gpus(NamedTuple):
    """What an instance has."""

    number: int
    kind: str
    """As `--gpu` has it."""


_ONE: Final = ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
_G5: Final = dict.fromkeys(_ONE, 1) | {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_G7: Final = dict.fromkeys(_ONE[1:4], 1) | {"12xlarge": 2, "24xlarge": 4, "48xlarge": 8}
FAMILIES: Final[dict[str, tuple[str, dict[str, int]]]] = {
    "g4dn": ("T4", dict.fromkeys(_ONE, 1) | {"12xlarge": 4}),
    "g5": ("A10G", _G5),
    "g6": ("L4", _G5),
    "gr6": ("L4", {"4xlarge": 1, "8xlarge": 1}),
    "g6e": ("L40S", _G5),
    "g7": ("RTX-PRO-4500", _G7),
    "g7e": ("RTX-PRO-6000", _G7),
    "p3": ("V100-16GB", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    "p3dn": ("V100-32GB", {"24xlarge": 8}),
    "p4d": ("A100-40GB", {"24xlarge": 8}),
    "p4de": ("A100-80GB", {"24xlarge": 8}),
    "p5": ("H100", {"4xlarge": 1, "48xlarge": 8}),
    "p5e": ("H200", {"48xlarge": 8}),
    "p5en": ("H200", {"48xlarge": 8}),
    "p6-b200": ("B200", {"48xlarge": 8}),
    "p6-b300": ("B300", {"48xlarge": 8}),
    "p6e-gb200": ("GB200", {"36xlarge": 4}),
}
"""Of each family the kind of GPU, and the number of GPUs of each size."""
OTHERS: Final = {
    "p2": "has K80 GPUs, on which no vLLM runs",
    "g6f": "has a part of an L4 GPU",
    "gr6f": "has a part of an L4 GPU",
    "inf1": "has AWS Inferentia devices, not GPUs",
    "inf2": "has AWS Inferentia2 devices, not GPUs",
    "trn1": "has AWS Trainium devices, not GPUs",
    "trn1n": "has AWS Trainium devices, not GPUs",
    "trn2": "has AWS Trainium2 devices, not GPUs",
    "dl1": "has Gaudi devices, not GPUs",
}
"""What families have that a model cannot be planned for by their names."""


def gpus_of(instance: str) -> Gpus | None:
    """Return the GPUs of an instance type such as ml.g5.12xlarge; None for an unknown one."""
    family, size = _parts(instance)
    kind, sizes = FAMILIES.get(family, ("", {}))
    return Gpus(sizes[size], kind) if size in sizes else None


def what_it_has(instance: str) -> str:
    """Return what is to be said of an instance type whose GPUs `gpus_of` does not know."""
    family, _ = _parts(instance)
    known = OTHERS.get(family, "its GPUs are not known")
    return f"{instance}: {known}; choose where it runs with --gpu and --gpus"


def _parts(instance: str) -> tuple[str, str]:
    family, _, size = instance.removeprefix("ml.").partition(".")
    return family, size
