"""What all of LMI's forms are made of: tokens, ends, and JSON that a client can read."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmi_backend.generation import Delta, Token
    from lmi_backend.schema.formats.requested import RequestedAnswer

Json = dict[str, Any]

_LEGACY: Final = {"stop": "eos_token"}
# JSON has no infinity; vLLM's own server writes this number for a token that cannot be.
_NEVER: Final = -9999.0


def dump(value: object) -> str:
    """Return JSON that can be sent."""
    return sendable(json.dumps(value, ensure_ascii=False))


def sendable(text: str) -> str:
    """Return a text as UTF-8 has it: half a character, which an engine may cut, becomes "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def finish_word(delta: Delta, requested: RequestedAnswer) -> str | int | None:
    """Return how an answer ended, as LMI calls it.

    The async handlers of LMI say the stop string or id itself, and nothing at an end of text or at
    the limit; that is a slip, so those ends have the words of the older handlers here.
    """
    if delta.finish_reason == "stop" and delta.stop_reason is not None:
        return delta.stop_reason if requested.dialect == "async" else "stop_sequence"
    return _LEGACY.get(delta.finish_reason or "", delta.finish_reason)


def token_object(token: Token, text: str, requested: RequestedAnswer) -> Json:
    """Return a token as LMI writes it."""
    is_tgi = requested.tgi_compat or requested.dialect == "async"
    members: Json = {"id": token.id, "text": text, "logprob" if is_tgi else "log_prob": log(token)}
    if token.is_special:
        members["special" if requested.tgi_compat else "special_token"] = True
    return members


def log(token: Token) -> float | None:
    """Return a token's log probability as a number JSON has."""
    if token.logprob is None or math.isfinite(token.logprob):
        return token.logprob
    return _NEVER


def token_texts(delta: Delta) -> list[str]:
    """Return the text of each token, which together are exactly the delta's text.

    A token's own text may differ from what it adds: a character may take two tokens, and text may
    be held back because a stop string could begin with it.
    """
    texts = [token.text for token in delta.tokens]
    if len(texts) > 1 and "".join(texts) == delta.text:
        return texts
    return [""] * (len(texts) - 1) + [delta.text]
