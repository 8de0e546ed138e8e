"""What Anthropic's clients are, with the events and errors that they read."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.openai import RefusingForm
from lmi_backend.clients.spec import (
    RELAY,
    ClientSpec,
    ErrorResponse,
    Path,
    failure,
    message_of,
    named_event,
    status_of,
)

if TYPE_CHECKING:
    from lmi_backend.errors import LmiError


EVENT: Final = b"event: error\n"
"""How an error begins amid events."""
_DATA: Final = b"data: "
_OTHER: Final = "internal_error"
"""vLLM's name of `api_error`."""
_UNREAD: Final = "validation error"
"""In the message where vLLM's server reads an error of its own as a piece of an answer."""
_TYPES: Final = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
    504: "timeout_error",
}  # fmt: skip


def anthropic_failure(error: LmiError) -> ErrorResponse:
    status = status_of(error)
    is_ours = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _TYPES.get(status, "api_error" if is_ours else "invalid_request_error")
    body = {"type": "error", "error": {"type": kind, "message": message_of(error)}}
    return failure(status, body, error)


def with_own_type(event: bytes) -> bytes:
    _, _, data = event.partition(_DATA)
    try:
        error = json.loads(data)["error"]
        kind, message = error["type"], str(error["message"])
    except (ValueError, KeyError, TypeError):
        return event
    if kind != _OTHER:
        return event
    message = "Internal server error" if _UNREAD in message else message
    body = {"type": "error", "error": {"type": "api_error", "message": message}}
    return named_event("error", json.dumps(body, ensure_ascii=False).encode())


class MessagesForm(RefusingForm):
    """The answer of an HTTP application; after an error in its events nothing follows."""

    def _event(self, error: LmiError) -> bytes:
        return named_event("error", anthropic_failure(error).data)


SPEC: Final = ClientSpec(
    name="anthropic",
    title="Anthropic",
    failure=anthropic_failure,
    form=MessagesForm,
    paths=(
        Path("/v1/messages", RELAY, takes_place=True, can_resume=True, by_tensor=True),
        Path("/v1/messages/count_tokens", RELAY, by_tensor=True),
        Path("/v1/messages/render", RELAY, by_tensor=True),
    ),
)
