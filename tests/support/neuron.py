"""An interpreter that seems to have AWS's plugin of vLLM for Neuron, and nothing else."""

import json
from pathlib import Path

GROUP = "vllm.platform_plugins"
VERSION = "0.24.0.1.1.0"
"""Of Neuron 2.32."""


def interpreter_with_plugin(folder: Path, name: str = "neuron") -> str:
    """Return an interpreter that lists one platform of vLLM's."""
    found = json.dumps([[name, "vllm_neuron:register", VERSION]])
    python = folder / f"python-{name}"
    python.write_text(
        f"#!/bin/sh\necho a .pth file printed this\n"
        f'[ "$3" = {GROUP} ] && echo \'{found}\' || echo "[]"\n',
        encoding="utf-8",
    )
    python.chmod(0o755)
    return str(python)
