"""What takes the middle of an answer that is kept, as `Client` does for one that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.frontend.kept_answer import KeptAnswer


class Direct:
    """Takes the middle of an answer, as `Client` does."""

    def __init__(self, kept: KeptAnswer) -> None:
        self._kept = kept

    @property
    def is_free(self) -> bool:
        """See `Client.is_free`."""
        return self._kept.is_kept or self._kept.first.direct.is_free

    def unsent(self) -> int:
        """See `Client.unsent`."""
        return 0 if self._kept.is_kept else self._kept.first.direct.unsent()

    def pass_on(self, data: bytes) -> bool:
        """See `Client.pass_on`."""
        is_free = self.is_free
        if is_free:
            self.write(data)
        return is_free

    def write(self, data: bytes) -> None:
        """See `Client.write`."""
        if self._kept.is_kept:
            self._kept.put(data)
        else:
            self._kept.first.direct.write(data)
