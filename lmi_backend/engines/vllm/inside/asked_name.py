"""Answers that name their model as the client does, by any of its names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, idle

_asked: Final[ContextVar[str]] = ContextVar("asked_name", default="")


class AskedName:
    """Has vLLM's server answer by the name in a body, if it is one of the model's.

    Args:
        models: vLLM's OpenAIServingModels.
        names: of the model; answers carry the first of them where a body names none.
    """

    def __init__(self, models: Any, names: list[str]) -> None:
        self._models, self._names, self._first = models, frozenset(names), names[0]
        self._own: Any = None
        fast_paths.probe(
            "asked_name", "a method that gives an answer its model's name", self._attach
        )

    def _attach(self) -> None:
        self._own = self._models.model_name
        if self._own() != self._first:
            raise ValueError(f"it gives {self._own()!r}, and the model is called {self._first!r}")
        self._models.model_name = self._name
        if self._models.model_name != self._name:
            raise TypeError("model_name cannot be replaced")

    def _name(self, *args: Any, **kwargs: Any) -> Any:
        idle.note_use("asked_name")
        name = self._own(*args, **kwargs)
        # That of an adapter is another's.
        return _asked.get() or name if name == self._first else name

    @contextmanager
    def asked(self, name: object) -> Iterator[None]:
        """Answer a body that calls the model by a name."""
        token = _asked.set(name if isinstance(name, str) and name in self._names else "")
        try:
            yield
        finally:
            _asked.reset(token)
