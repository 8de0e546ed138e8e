"""What goes back: the contract of all wire formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lmi_backend.errors import LmiError, RequestError
from lmi_backend.generation import Chunk, GenerateRequest, HttpRequest

Value = str | bytes | int | float
Output = Value | list[str] | list[int] | list[float]
"""Value of an output tensor; a list has one element for each answer or token."""
Response = dict[str, Output]


class Reply(Protocol):
    """Turns the chunks of one request's answers into responses of named outputs."""

    outputs: frozenset[str]
    """Names of the optional outputs that are wanted."""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        """Return the responses to send now.

        Args:
            chunks: what has come since the last call, at most one chunk of each answer.
            is_last: nothing more will come; then there is at least one response.

        Raises:
            LmiError: the answer is an error.
        """
        ...

    def failure(self, error: LmiError) -> LmiError:
        """Return an error as this client would read it."""
        ...


INPLACE: Final = "load_inplace"
"""vLLM's parameter that has a known adapter loaded again, perhaps from another folder."""


@dataclass(frozen=True)
class AdapterChange:
    """A management request: what is to happen to which LoRA adapter."""

    body: dict[str, object]
    """Members of LMI's management API, and perhaps `load_inplace`."""


@dataclass(frozen=True)
class Cancel:
    """A request to end the running request of the same id."""


@dataclass(frozen=True)
class ParsedRequest:
    """A request that was understood."""

    work: tuple[GenerateRequest, ...] | HttpRequest | AdapterChange | Cancel
    reply: Reply
    dropped: tuple[str, ...] = ()
    """Parameters that change nothing, as in LMI; worth a line in the log."""
    tenant: str = ""
    """On whose behalf, as the request says; empty for the tenant all others share."""


def rename_prompt(error: LmiError, field: str) -> LmiError:
    """Return an error that calls the prompt what the client calls it."""
    if isinstance(error, RequestError) and error.field == "prompt":
        return RequestError(error.detail, field=field)
    return error
