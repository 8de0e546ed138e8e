"""What vLLM's processes load of this package, by the entry points in the folders of plugin/."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "plugin"
_NAME: Final = "lmi-backend"
"""Of each entry point but those of `_OWN`."""
_OWN: Final = {
    "closed_groups": "lmi-backend-closed-groups",
    "gate": "lmi-backend-gate",
    "lora_rows": "lmi-backend-lora-rows",
    "seeded_steps": "lmi-backend-seeded-steps",
}
"""Names of plugins whose group has one already: vLLM loads one of each name."""


def install(name: str) -> None:
    """Let this process and those it starts find a plugin, also if a user lists others.

    Args:
        name: of its folder.
    """
    folder = str(_FOLDER / name)
    if folder not in sys.path:
        sys.path.append(folder)
    listed, entry = os.environ.get("VLLM_PLUGINS"), _OWN.get(name, _NAME)
    if listed is not None and entry not in listed.split(","):
        os.environ["VLLM_PLUGINS"] = f"{listed},{entry}"


def remove() -> None:
    """Let processes that this one starts find none of these plugins any more."""
    sys.path[:] = [each for each in sys.path if Path(each).parent != _FOLDER]
    if listed := os.environ.get("VLLM_PLUGINS"):
        others = [each for each in listed.split(",") if each not in (_NAME, *_OWN.values())]
        os.environ["VLLM_PLUGINS"] = ",".join(others)
