"""What formatters of LMI's older handlers see of a request and its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Token:
    """A token; `text` is what it adds."""

    id: int | None
    text: str
    log_prob: float | None = None
    special_token: bool | None = None
    error_msg: str | None = None

    def as_dict(self) -> dict[str, Any]:
        members: dict[str, Any] = {"id": self.id, "text": self.text, "log_prob": self.log_prob}
        if self.special_token:
            members["special_token"] = True
        if self.error_msg:
            members["error_msg"] = self.error_msg
        return members

    def as_tgi_dict(self) -> dict[str, Any]:
        members: dict[str, Any] = {"id": self.id, "text": self.text, "logprob": self.log_prob}
        if self.special_token:
            members["special"] = True
        return members


@dataclass
class Sequence:
    """One answer so far. `get_next_token` hands out each token once."""

    tokens: list[Token] = field(default_factory=list)
    top_tokens: list[list[Token]] = field(default_factory=list)
    cumulative_log_prob: float = 0.0
    finish_reason: str | None = None
    stop_reason: str | None = None
    _given: int = 0

    def has_next_token(self) -> bool:
        return self._given < len(self.tokens)

    def get_next_token(self) -> tuple[Token, int, bool, bool]:
        """Return the next token, its index, and whether it is the first and the last."""
        index = self._given
        token = self.tokens[index]
        self._given += 1
        is_last = self.finish_reason is not None and self._given == len(self.tokens)
        return token, index, index == 0, is_last


@dataclass
class RequestInput:
    """A request as a formatter reads it."""

    request_id: int = 0
    client_request_id: str = ""
    output_formatter: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    server_parameters: dict[str, Any] = field(default_factory=dict)
    tgi_compat: bool = False


@dataclass
class TextInput(RequestInput):
    """A request for text."""

    input_text: Any = ""
    adapters: Any = None
    tokenizer: Any = None


@dataclass
class TextGenerationOutput:
    """An answer so far, as a formatter gets it with each step."""

    request_id: int = 0
    finished: bool = False
    input: TextInput = field(default_factory=TextInput)
    sequences: dict[int, Sequence] = field(default_factory=dict)
    best_sequence_index: int = 0
    prompt_tokens_details: list[Token] = field(default_factory=list)
    other_sequences_indices: list[int] = field(default_factory=list)
