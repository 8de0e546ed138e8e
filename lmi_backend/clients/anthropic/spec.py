"""What Anthropic's clients are."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.anthropic.errors import anthropic_failure
from lmi_backend.clients.anthropic.form import MessagesForm
from lmi_backend.clients.spec import RELAY, ClientSpec, Path

SPEC: Final = ClientSpec(
    name="anthropic",
    title="Anthropic",
    order=30,
    failure=anthropic_failure,
    form=MessagesForm,
    paths=(
        Path("/v1/messages", RELAY, takes_place=True, can_resume=True, by_tensor=True),
        Path("/v1/messages/count_tokens", RELAY, by_tensor=True),
        Path("/v1/messages/render", RELAY, by_tensor=True),
    ),
)
