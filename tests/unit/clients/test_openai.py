"""The type that an error has for OpenAI's clients."""

import json

import pytest

from lmi_backend.clients.openai import openai_failure
from lmi_backend.errors import HttpError


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
        (499, "ClientClosedRequest"),
        # HTTP has no such statuses.
        (498, "BadRequestError"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailableError"),
        (599, "InternalServerError"),
    ],
)
def test_the_type_follows_from_the_status(status: int, kind: str) -> None:
    error = json.loads(openai_failure(HttpError(status, "why")).data)["error"]
    assert (error["type"], error["code"], error["message"]) == (kind, status, "why")
