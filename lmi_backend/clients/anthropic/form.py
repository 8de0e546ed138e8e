"""Answers in Anthropic's events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.clients.anthropic.errors import anthropic_failure
from lmi_backend.clients.form import named_event
from lmi_backend.clients.openai.form import RefusingForm

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError


class MessagesForm(RefusingForm):
    """The answer of an HTTP application; after an error in its events nothing follows."""

    def _event(self, error: LmiError) -> bytes:
        return named_event("error", anthropic_failure(error).data)
