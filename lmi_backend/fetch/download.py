"""Download a whole model before its servers start: the Job that `deploy --with cache` writes.

python -m lmi_backend.fetch.download MODEL [REVISION]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.s3 import fetch_s3
from lmi_backend.fetch.weights import Download, fetch_weights
from lmi_backend.printable import say

_STEP: Final = 5
"""Percent of a download between two lines."""


def main(arguments: Sequence[str]) -> int:
    """Download a Hub model or an s3:// prefix; return the exit status."""
    model, revision, *_ = (*arguments, "")
    reported = 0

    def tell(download: Download) -> None:
        nonlocal reported
        if download.percent >= reported:
            reported = download.percent + _STEP
            say(f"{model}: {download}")

    try:
        if model.startswith("s3://"):
            fetch_s3(model, os.environ, say=say)
            return 0
    except ConfigurationError as error:
        say(str(error))
        return 1
    python = os.environ.get("PYTHON_EXECUTABLE") or sys.executable
    if problem := fetch_weights(python, model, revision, os.environ, tell, whole=True):
        say(f"{model}: {problem}")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
