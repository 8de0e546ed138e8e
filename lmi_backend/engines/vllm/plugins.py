"""What vLLM's processes load of this package, by the entry points in the folder plugin/."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "plugin"
_NAME: Final = "lmi-backend"
"""Of its entry points."""


def install() -> None:
    """Let this process and those it starts find our plugins, beside those that a user lists."""
    if str(_FOLDER) not in sys.path:
        sys.path.append(str(_FOLDER))
    listed = os.environ.get("VLLM_PLUGINS")
    if listed is not None and _NAME not in listed.split(","):
        os.environ["VLLM_PLUGINS"] = f"{listed},{_NAME}"
