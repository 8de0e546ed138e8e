"""Importing does nothing: each module alone, in a clean child."""

import pkgutil
import subprocess
import sys

import pytest

import lmi_backend

# These need the interpreter they are made for.
ELSEWHERE = (
    "lmi_backend.triton",
    "lmi_backend.engines.vllm",
    "lmi_backend.engines.hf.",
    "lmi_backend.engines.transformers.neuronx",
    "lmi_backend.engines.transformers.",
    "lmi_backend.engines.trtllm.",
)
LIGHT = ("lmi_backend.options", "lmi_backend.plan", "lmi_backend.repository")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(lmi_backend.__path__, "lmi_backend.")
    if not module.name.startswith(ELSEWHERE)
]

PROBE = """
import importlib, os, sys
threads = lambda: os.listdir("/proc/self/task")
before = dict(os.environ), threads()
importlib.import_module(sys.argv[1])
assert (dict(os.environ), threads()) == before
print(*sys.modules)
"""


@pytest.mark.parametrize("module", MODULES)
def test_importing_changes_nothing_and_loads_no_engine(module: str) -> None:
    command = [sys.executable, "-c", PROBE, module]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded & {"torch", "vllm", "transformers", "tritonclient", "pytriton"}
    if module.startswith(LIGHT):
        assert not loaded & {"numpy", "msgspec"}


def test_the_walk_finds_the_package() -> None:
    assert len(MODULES) > 40
    assert all(any(name.startswith(part) for name in MODULES) for part in LIGHT)
