"""What this machine offers: the accelerators a worker may be given."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEVICE_NODE = re.compile(r"nvidia(\d+)")


def visible_devices(environment: Mapping[str, str], *, nodes: Path = Path("/dev")) -> list[str]:
    """Return the names of the CUDA devices that may be used, as CUDA_VISIBLE_DEVICES spells them.

    CUDA_VISIBLE_DEVICES decides if it is set; else the device nodes of the container. No driver
    library is loaded: this also runs in an interpreter that Triton throws away.
    """
    mask = environment.get("CUDA_VISIBLE_DEVICES")
    if mask is not None:
        names = [name.strip() for name in mask.split(",")]
        # CUDA ignores what follows the first invalid entry; -1 is the usual way to hide all.
        return names[: names.index("-1")] if "-1" in names else [name for name in names if name]
    found = (_DEVICE_NODE.fullmatch(node.name) for node in nodes.glob("nvidia*"))
    return [str(index) for index in sorted(int(match[1]) for match in found if match)]
