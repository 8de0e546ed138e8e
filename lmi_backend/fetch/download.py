"""Download a whole model before its servers start: the Job that `deploy --with cache` writes.

python -m lmi_backend.fetch.download MODEL [REVISION]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.hub import cause_of
from lmi_backend.fetch.s3 import fetch_s3
from lmi_backend.fetch.weights import Download, fetch_weights
from lmi_backend.printable import say

_STEP: Final = 5
"""Percent of a download between two lines."""
# The files that are not weights, and weights of other formats.
_REST: Final = """\
import sys
from huggingface_hub import snapshot_download
try:
    snapshot_download(sys.argv[1], revision=sys.argv[2] or None)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def main(arguments: Sequence[str]) -> int:
    """Download a Hub model or an s3:// prefix; return the exit status."""
    model, revision, *_ = (*arguments, "")
    try:
        if model.startswith("s3://"):
            fetch_s3(model, os.environ, say=say)
        else:
            _from_hub(model, revision)
    except ConfigurationError as error:
        say(str(error))
        return 1
    return 0


def _from_hub(model: str, revision: str) -> None:
    """Download a Hub model; weights whose download was cut are resumed."""
    python = os.environ.get("PYTHON_EXECUTABLE") or sys.executable
    # A model without safetensors has none; then the rest is all.
    fetch_weights(python, model, revision, os.environ, _Progress(model))
    done = subprocess.run(  # noqa: S603  the image's own interpreter
        (python, "-c", _REST, model, revision),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigurationError(f"{model}: {cause_of(done.stderr, python)}")


class _Progress:
    """Logs a download now and then."""

    def __init__(self, model: str) -> None:
        self._model, self._next = model, 0

    def __call__(self, download: Download) -> None:
        if download.percent >= self._next:
            self._next = download.percent + _STEP
            say(f"{self._model}: {download}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
