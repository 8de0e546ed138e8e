"""Which release of vLLM the tests run, where older ones lack what is tested."""

from lmi_backend.options.signature import installed_version
from tests.support.places import ENGINE_PYTHON


def vllm_release() -> tuple[int, int]:
    """Return (0, 32) of 0.32.0."""
    major, minor, *_ = installed_version("vllm", str(ENGINE_PYTHON)).split(".")
    return int(major), int(minor)
