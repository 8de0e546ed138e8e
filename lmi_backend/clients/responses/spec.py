"""What clients of OpenAI's Responses API are."""

from __future__ import annotations

from typing import Final

from lmi_backend.clients.openai.errors import openai_failure
from lmi_backend.clients.responses.form import ResponsesForm
from lmi_backend.clients.spec import RELAY, STORED, ClientSpec, Path

SPEC: Final = ClientSpec(
    name="responses",
    title="OpenAI, Responses",
    order=21,
    failure=openai_failure,
    form=ResponsesForm,
    paths=(
        Path("/v1/responses", RELAY, takes_place=True, can_resume=True, by_tensor=True),
        Path("/v1/responses/render", RELAY, by_tensor=True),
        Path("/v1/responses/{id}", STORED, "GET DELETE", by_tensor=True),
        Path("/v1/responses/{id}/cancel", STORED, by_tensor=True),
    ),
)
