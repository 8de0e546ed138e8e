"""An interpreter that seems to have AWS's plugin of vLLM for Neuron, and nothing else."""

from pathlib import Path

from tests.support.installed_engine import interpreter

GROUP = "vllm.platform_plugins"
VERSION = "0.24.0.1.1.0"
"""Of Neuron 2.32."""


def interpreter_with_plugin(folder: Path, name: str = "neuron") -> str:
    """Return an interpreter that lists one platform of vLLM's."""
    package = folder / name / "vllm"
    info = package.parent / f"vllm_neuron-{VERSION}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    text = f"[{GROUP}]\n{name} = vllm_neuron:register\n"
    (info / "entry_points.txt").write_text(text, encoding="utf-8")
    return interpreter(folder / name, package)
