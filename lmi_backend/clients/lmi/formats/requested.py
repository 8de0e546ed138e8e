"""What an LMI body wants of its answer, and the contract of what writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Delta


@dataclass(frozen=True)
class RequestedAnswer:
    """What an LMI body wants of its answer.

    Answers are counted as in `Delta.index`: `n` to the first prompt, then those to the next.
    """

    prompts: tuple[str, ...]
    """Their texts; empty for one that was given as token ids."""
    is_list: bool = False
    """Whether `inputs` was a list: so is the answer."""
    n: int = 1
    stream: bool = False
    details: bool = False
    return_full_text: bool = False
    decoder_input_details: bool = False
    top_n_tokens: int = 0
    seed: int | None = None
    tgi_compat: bool = False
    dialect: Literal["legacy", "async"] = "legacy"

    @property
    def answers(self) -> int:
        """How many there will be."""
        return len(self.prompts) * self.n

    def prefix(self, index: int) -> str:
        """Return what comes before an answer's text: its prompt, if it is wanted back."""
        return self.prompts[index // self.n] if self.return_full_text else ""


class Format(Protocol):
    """Writes the answers to one body."""

    content_type: str

    @property
    def is_by_token(self) -> bool:
        """Whether each token is shown by itself."""
        ...

    def write(self, deltas: Sequence[Delta]) -> str:
        """Return what to write for these deltas; empty if nothing yet."""
        ...

    def fail(self, error: LmiError) -> str:
        """Return the last part of a body that fails after a part has been written."""
        ...
