"""The decorators of functions in a model.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def input_formatter(function: F) -> F:
    """Mark the function that reads request bodies."""
    function.is_input_formatter = True  # type: ignore[attr-defined]
    return function


def predict_handler(function: F) -> F:
    """Mark the function that answers requests."""
    function.is_prediction_handler = True  # type: ignore[attr-defined]
    return function


def init_handler(function: F) -> F:
    """Mark the function that loads the model."""
    function.is_init_handler = True  # type: ignore[attr-defined]
    return function
