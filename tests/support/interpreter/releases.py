"""Which build of vLLM the tests run, where some lack what is tested."""

import os
from pathlib import Path

from lmi_backend.options.signature import installed_version
from tests.support.run.places import ENGINE_PYTHON

IS_COMPAT = "LMI_BACKEND_TEST_COMPAT" in os.environ
"""Whether `make compat` runs the tests, on each release of vLLM or Triton: it does more of some."""


def vllm_release() -> tuple[int, int]:
    """Return (0, 32) of 0.32.0."""
    major, minor, *_ = installed_version("vllm", str(ENGINE_PYTHON)).split(".")
    return int(major), int(minor)


def has_avx512() -> bool:
    """Tell whether vLLM takes its CPU build with AVX-512 here, as `CpuPlatform.import_kernels`."""
    return " avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
