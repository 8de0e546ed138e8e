"""Modules of ours that need Triton's own, imported where that is the double."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.run.places import TESTS

_OURS = "lmi_backend.triton."


def _of_triton() -> dict[str, Any]:
    names = ("triton_python_backend_utils", _OURS)
    return {name: module for name, module in sys.modules.items() if name.startswith(names)}


@contextmanager
def beside_the_double(*names: str) -> Iterator[tuple[Any, ...]]:
    """Import modules of lmi_backend.triton anew; what was imported before is back at the end."""
    before = _of_triton()
    for name in before:
        del sys.modules[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TESTS / "fakes" / "triton"))
        yield tuple(importlib.import_module(_OURS + name) for name in names)
    for name in _of_triton():
        del sys.modules[name]
    sys.modules.update(before)
