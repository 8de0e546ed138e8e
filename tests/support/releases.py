"""Which build of vLLM the tests run, where some lack what is tested."""

from pathlib import Path

from lmi_backend.options.signature import installed_version
from tests.support.places import ENGINE_PYTHON


def vllm_release() -> tuple[int, int]:
    """Return (0, 32) of 0.32.0."""
    major, minor, *_ = installed_version("vllm", str(ENGINE_PYTHON)).split(".")
    return int(major), int(minor)


def has_avx512() -> bool:
    """Tell whether vLLM takes its CPU build with AVX-512 here, as `CpuPlatform.import_kernels`."""
    return " avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
