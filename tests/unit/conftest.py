"""Unit tests know nothing of the shell they are run from."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What options, plans, caches and devices are read from.
_OF_LMI = ("OPTION_", "SERVING_", "SAGEMAKER_")
_PREFIXES = (*_OF_LMI, "HF_", "VLLM_", "CUDA_", "NVIDIA_", "OMPI_", "AWS_")
_NAMES = ("PYTHONPATH", "TENSOR_PARALLEL_DEGREE", "XDG_CACHE_HOME", "TMPDIR", "AIP_MODE")

# How long an example takes is the machine's: other tests run beside it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_PREFIXES) or name in _NAMES:
            monkeypatch.delenv(name)
    # The Makefile names the engine's interpreter, which these tests do not need.
    if not Path(os.environ.get("PYTHON_EXECUTABLE", "")).is_file():
        monkeypatch.delenv("PYTHON_EXECUTABLE", raising=False)
    # Nobody is asked for the config.json of a model that is only named.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
