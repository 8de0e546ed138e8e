"""Responses that are made in the background: they are kept, whether a client is there or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.frontend.kept_answer import KeptAnswer

if TYPE_CHECKING:
    import asyncio

    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping


class BackgroundAnswer(KeptAnswer):
    """An answer that is generated to its end, and then kept for its window.

    Each request for its state starts the window again.

    Args:
        store: holds it while it is kept.
        exchange: its first request.
        window: seconds that it is kept after its end.
        name: as `KeptAnswer`.
        is_stream: whether its first client reads its events.
    """

    def __init__(
        self,
        store: Keeping,
        exchange: Exchange,
        window: float,
        name: str = "",
        *,
        is_stream: bool = False,
    ) -> None:
        super().__init__(store, exchange, window, name)
        self.is_stream = is_stream
        self.is_cancelled = False

    def cancel(self) -> None:
        """Stop to generate it; what there is stays for its window."""
        if not self.is_over:
            self.is_cancelled = True
            if self.at_model is not None:
                self.at_model.answer.cancel()
            self._leave()

    def touch(self) -> None:
        """Note that a client requests its state."""
        self._start_window()

    def _start_window(self) -> None:
        if self.is_over and self.is_away and not self._is_forgotten:
            super()._start_window()

    def _end(self, task: asyncio.Task[None]) -> None:
        # Of a cancelled one nothing follows, and nothing is missing.
        self._has_end = self._has_end or self.is_cancelled
        super()._end(task)
        self._start_window()

    @property
    def has_left(self) -> bool:
        """See `Exchange.has_left`: a cancelled one has nobody who reads its error."""
        return self.is_cancelled or super().has_left
