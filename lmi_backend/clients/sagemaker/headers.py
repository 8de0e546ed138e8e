"""Headers with which AWS's libraries name a model, or request more than an answer."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.spec import TARGET
from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TARGETS: Final = (
    TARGET,
    "x-amzn-sagemaker-inference-component",
    "x-amzn-sagemaker-target-container-hostname",
)
"""Headers that name a model; the first one that is there counts."""
_SESSION: Final = "x-amzn-sagemaker-session-id"
_NEW: Final = "NEW_SESSION"
_EXPLANATIONS: Final = "x-amzn-sagemaker-enable-explanations"

HARMLESS: Final[Mapping[str, str]] = {
    "CustomAttributes": "labels of the client's own",
    "InferenceId": "names the exchange in what is captured of it",
    "PrefixAwareId": "chooses among instances by what they have in their caches",
    "SessionId": "there are no sessions; `NEW_SESSION` is refused, but for handlers of your own",
    "TargetVariant": "there is one variant",
}
"""Members of InvokeEndpoint without an effect, and why the answer is still the right one."""


def target_of(headers: Mapping[str, str]) -> str:
    """Return the name of a model in the headers; empty if there is none."""
    return next((headers[name] for name in _TARGETS if headers.get(name)), "")


def check_extras(headers: Mapping[str, str], body: Mapping[str, object]) -> None:
    """Refuse what is wanted in addition to an answer; users' own code may serve it.

    Raises:
        HttpError: a session is to be opened or closed, or the answer is to be explained.
    """
    if headers.get(_SESSION) == _NEW:
        raise HttpError(HTTPStatus.BAD_REQUEST, "SessionId NEW_SESSION: sessions are not served")
    if (kind := body.get("requestType")) in (_NEW, "CLOSE"):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"requestType {kind}: sessions are not served")
    # A JMESPath expression, where a literal is in backticks.
    if headers.get(_EXPLANATIONS, "").strip("`").lower() not in ("", "false"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "EnableExplanations: answers are not explained")
