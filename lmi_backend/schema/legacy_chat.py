"""Chat answers with the words of LMI's older handlers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lmi_backend.schema.body_reply import BodyReply
from lmi_backend.schema.formats.chunks import dump

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.schema.reply import Response

_EVENT = "data: "


class LegacyChatReply(BodyReply):
    """OpenAI's answer, but for how it ended: eos_token, or stop_sequence."""

    def responses(self, chunks: Sequence[Chunk], *, is_last: bool) -> list[Response]:
        responses = super().responses(chunks, is_last=is_last)
        for response in responses:
            data = response.get("response")
            # Most chunks of a stream do not end anything.
            if isinstance(data, bytes) and b'"finish_reason":"' in data.replace(b" ", b""):
                response["response"] = _translate(data.decode("utf-8"))
        return responses


def _translate(text: str) -> str:
    if not text.startswith(_EVENT):
        return dump(_with_reasons(json.loads(text)))
    return "\n\n".join(_translate_event(event) for event in text.split("\n\n"))


def _translate_event(event: str) -> str:
    body = event.removeprefix(_EVENT)
    return _EVENT + dump(_with_reasons(json.loads(body))) if body.startswith("{") else event


def _with_reasons(body: Any) -> Any:
    for choice in body.get("choices", ()):
        if choice.get("finish_reason") == "stop":
            is_string = choice.get("stop_reason") is not None
            choice["finish_reason"] = "stop_sequence" if is_string else "eos_token"
    return body
