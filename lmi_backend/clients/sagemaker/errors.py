"""Errors as AWS's libraries read them."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.failure import ErrorResponse, is_object
from lmi_backend.clients.lmi.errors import lmi_failure
from lmi_backend.errors import HttpError, UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.errors import LmiError

_MODEL_ERROR: Final = 424
_KINDS: Final = {
    401: (403, "UnrecognizedClientException"),
    403: (403, "AccessDeniedException"),
    404: (404, "UnknownOperationException"),
    405: (405, "MethodNotAllowedException"),
    429: (429, "ThrottlingException"),
    503: (503, "ServiceUnavailable"),
}
"""Status and name of what is not the model's fault; all else is a `ValidationError`."""
_INVALID: Final = (400, "ValidationError")


def sagemaker_failure(error: LmiError) -> ErrorResponse:
    """Return an error as AWS's libraries read it.

    What the container would have answered is a `ModelError`, with the answer in it, but for 503:
    these libraries try again by themselves at 503 only.
    """
    status, data, headers = lmi_failure(error)
    text = str(error)
    is_ours = isinstance(error, HttpError) and not (error.is_models or is_object(text))
    if not is_ours and status not in (401, 403, 429, 503):
        return model_error(status, data.decode())
    shown, kind = _KINDS.get(status, _INVALID)
    if isinstance(error, UnknownModelError):
        (shown, kind), text = _INVALID, f"Endpoint not found: {text}"
    more = {name: value for name, value in headers.items() if name == "retry-after"}
    return _failure(shown, kind, {"Message": text}, more)


def model_error(status: int, text: str) -> ErrorResponse:
    """Return what the service makes of the container's error."""
    whose = "server" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "client"
    body = {
        "Message": f'Received {whose} error ({status}) from primary with message "{text}"',
        "OriginalStatusCode": status,
        "OriginalMessage": text,
        "LogStreamArn": "",
    }
    return _failure(_MODEL_ERROR, "ModelError", body, {})


def _failure(
    status: int, kind: str, body: Mapping[str, object], more: dict[str, str]
) -> ErrorResponse:
    headers = {"content-type": "application/json", "x-amzn-errortype": kind, **more}
    return ErrorResponse(status, json.dumps(body).encode(), headers)
