"""A model that is ready to generate."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.engines.steps import StepOutput


class Loaded(NamedTuple):
    """A model and its tokenizer."""

    model: Any
    tokenizer: Any
    max_model_len: int
    """Longest prompt plus answer, in tokens."""
    is_seq2seq: bool = False
    device: str = "cpu"
    """Device of the prompts' tensors."""


class Batch(Protocol):
    """A continuous batch that the library itself steps."""

    def submit(
        self,
        ids: Sequence[int],
        arguments: dict[str, Any],
        on_step: Callable[[StepOutput], None],
        *,
        is_streamed: bool,
    ) -> Callable[[], None]:
        """Start a request; return a function that cancels it. Call both inside the event loop."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Return a context in which no step is made."""
        ...

    def check_health(self) -> None:
        """Raise EngineDeadError if it has stopped."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def paused(batch: Batch | None) -> AbstractContextManager[None]:
    """Return a context in which the batch makes no step, so that the model is free."""
    return batch.pause() if batch is not None else nullcontext()
