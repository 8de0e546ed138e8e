"""Answers that name their model as the client does, by any of its names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from lmi_backend.engines.vllm.inside import compat, fast_paths

_asked: Final[ContextVar[str]] = ContextVar("asked_name", default="")


class _Models:
    """What an OpenAIServingModels does besides vLLM's own work."""

    def model_name(self, *args: Any, **kwargs: Any) -> Any:
        """Return the name that an answer gives its model."""
        name = super().model_name(*args, **kwargs)  # type: ignore[misc]
        # That of an adapter is another's.
        is_first = name == self.first_name  # type: ignore[attr-defined]
        return _asked.get() or name if is_first else name


class AskedName:
    """Has vLLM's server answer by the name in a body, if it is one of the model's.

    Args:
        models: vLLM's OpenAIServingModels.
        names: of the model; answers carry the first of them where a body names none.
    """

    def __init__(self, models: Any, names: list[str]) -> None:
        self._models, self._names, self._first = models, frozenset(names), names[0]
        fast_paths.probe(
            "asked_name", "a method that gives an answer its model's name", self._attach
        )

    def _attach(self) -> None:
        if (found := self._models.model_name()) != self._first:
            raise ValueError(f"it gives {found!r}, and the model is called {self._first!r}")
        self._models.first_name = self._first
        compat.subclass(self._models, _Models)

    @contextmanager
    def asked(self, name: object) -> Iterator[None]:
        """Answer a body that calls the model by a name."""
        token = _asked.set(name if isinstance(name, str) and name in self._names else "")
        try:
            yield
        finally:
            _asked.reset(token)
