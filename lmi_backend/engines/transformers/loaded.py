"""A model that is ready to generate."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engines.transformers.steps import Step


class Loaded(NamedTuple):
    """A model and its tokenizer."""

    model: Any
    tokenizer: Any
    max_model_len: int
    """Longest prompt plus answer, in tokens."""
    is_seq2seq: bool = False
    device: str = "cpu"
    """Where prompts are put."""


class Batch(Protocol):
    """A continuous batch that the library itself steps."""

    def submit(
        self,
        ids: Sequence[int],
        arguments: dict[str, Any],
        on_step: Callable[[Step], None],
        *,
        is_streamed: bool,
    ) -> Callable[[], None]:
        """Start a request; return what cancels it. Both only inside the event loop."""
        ...

    def pause(self) -> Any:
        """Return a context in which no step is made."""
        ...

    def check_health(self) -> None:
        """Raise EngineDeadError if it has ended."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class NoAdapters:
    """Of a model that takes none."""

    def check(self, name: str) -> None:
        """Raise RequestError for any name; the base model is called nothing."""
        if name:
            raise RequestError("is not served by this engine", field="adapter", value=name)

    def load(self, name: str, folder: str) -> None:
        """Raise RequestError."""
        self.check(name)

    def unload(self, name: str) -> None:
        """Raise RequestError."""
        self.check(name)

    def use(self, name: str) -> None:
        """Do nothing."""


def paused(batch: Batch | None) -> Any:
    """Return a context in which the model belongs to whoever enters it."""
    return batch.pause() if batch is not None else nullcontext()
