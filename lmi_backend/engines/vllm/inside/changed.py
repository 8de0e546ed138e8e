"""Whether the installed vLLM is as it was released: its files have the digests of its wheel."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from lmi_backend.engines.vllm.inside.source import installed


def is_changed(modules: Iterable[str]) -> bool:
    """Tell whether the file of any module has been changed since it was installed.

    Where no wheel has told of a file, nothing is known, and it counts as unchanged.
    """
    source = installed()
    paths = {path for each in modules if (path := source.path(each)) is not None}
    for distribution in distributions(path=[str(source.folder.parent)]):
        if not distribution.name.startswith(source.package):
            continue
        for each in distribution.files or ():
            path = Path(each.locate())
            if each.hash is None or path not in paths:
                continue
            digest = hashlib.new(each.hash.mode, path.read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != each.hash.value:
                return True
    return False
