"""Which engines of the tests compile."""

import contextlib
from collections.abc import Iterator

import pytest

NO_COMPILER = "TORCH_COMPILE_DISABLE"
"""PyTorch's variable."""


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Let the engines that are started in this block compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(NO_COMPILER, raising=False)
        yield
