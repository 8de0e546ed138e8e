"""What a worker logs on standard error, which the stub takes line by line."""

from __future__ import annotations

import logging
import sys
from typing import Final

_LEVEL: Final = logging.INFO


def configure_logs() -> None:
    """Log from here on; our own lines at any level of the root logger."""
    logging.basicConfig(
        stream=sys.stderr, level=_LEVEL, format="%(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("lmi_backend").setLevel(_LEVEL)


def restore_logs() -> None:
    """Let users' code log again as before an engine was imported.

    A package that vLLM 0.32 imports, model_hosting_container_standards, has the root logger of its
    process let errors only through.
    """
    root = logging.getLogger()
    root.setLevel(_LEVEL)
    for handler in root.handlers:
        handler.setLevel(logging.NOTSET)
