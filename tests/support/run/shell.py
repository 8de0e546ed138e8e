"""What tests see of the shell that they are run from: what this file names, and nothing else."""

import os
import tempfile

from tests.support.run.ports import RUN

MACHINE = (
    "PATH", "HOME", "USER", "LOGNAME", "TERM", "CI", "LD_LIBRARY_PATH", "CUDA_HOME",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
"""Where the machine's programs, folders and certificates are."""
WORKERS = ("PYTHON_EXECUTABLE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Which engine, GPUs and cores the workers have: the product reads these too, so unit tests do
without."""
OWN = (
    "GPU_PYTHON", "LMI_BACKEND_TEST_", "LMI_BACKEND_REAL_TRTLLM", "UPDATE_GOLDEN",
    "UPDATE_PICTURES", "PYTEST_", "PY_COLORS",
)  # fmt: skip
"""Beginnings of what only the tests read."""
REGISTRIES = (
    "PIP_", "UV_", "NPM_CONFIG_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
)  # fmt: skip
"""Beginnings of what installs programs; `make clients` does so in a test."""


def forget_shell() -> None:
    """Remove from the environment what no list names: an option of the user would change tests."""
    installs = REGISTRIES if "LMI_BACKEND_TEST_PROGRAMS" in os.environ else ()
    for name in set(os.environ).difference(MACHINE, WORKERS):
        if not name.upper().startswith((*OWN, *installs)):
            del os.environ[name]
    if run := os.environ.get(RUN):
        os.environ["TMPDIR"] = run
    # It may have been read already.
    tempfile.tempdir = None
