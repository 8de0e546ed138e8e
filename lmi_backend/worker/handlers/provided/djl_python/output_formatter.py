"""The decorator of the function that writes answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .request_io import Sequence, TextGenerationOutput, Token

__all__ = ["Sequence", "TextGenerationOutput", "Token", "output_formatter"]

F = TypeVar("F", bound=Callable[..., Any])


def output_formatter(function: F) -> F:
    """Mark the function that writes answers."""
    function.is_output_formatter = True  # type: ignore[attr-defined]
    return function
