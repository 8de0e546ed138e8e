"""Bodies of Text Generation Inference: `inputs` and `parameters`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.fields import FIELDS
from lmi_backend.clients.lmi.body_reply import LmiBodyReply
from lmi_backend.clients.lmi.reading import LmiReply, read_lmi
from lmi_backend.clients.parameters import read_parameters
from lmi_backend.clients.spec import Read
from lmi_backend.clients.spelling import plain_name
from lmi_backend.clients.tgi.form import TgiForm
from lmi_backend.clients.unserved_names import UNSERVED
from lmi_backend.clients.values import BOOLEAN, read_value
from lmi_backend.engine_config import ClientSettings
from lmi_backend.errors import RequestError

if TYPE_CHECKING:
    from lmi_backend.engine_config import Context

_DEFAULTS: Final[dict[str, Any]] = {"max_new_tokens": 100, "include_stop_str_in_output": True}
"""Of its server: the text of an answer includes the stop sequence."""
_AT_TOP: Final = frozenset({"inputs", "stream", "model"})
"""Members that stand outside of `parameters`."""
_ELSEWHERE: Final = ("messages", "prompt", "tools", "tool_choice", "response_format")
"""Members of other bodies: this one has a prompt of its own, and calls no tools."""
_SETTINGS: Final = ClientSettings(dialect="legacy")
_SAMPLING: Final = frozenset({"temperature", "top_k", "top_p", "typical_p"})


def read_whole(body: dict[str, Any], context: Context) -> Read:
    """Read a body whose answer is one object. Raises RequestError: it is wrong."""
    return _read(body, context, stream=False)


def read_stream(body: dict[str, Any], context: Context) -> Read:
    """Read a body whose answer is an event a token. Raises RequestError: it is wrong."""
    return _read(body, context, stream=True)


def read_either(body: dict[str, Any], context: Context) -> Read:
    """Read a body whose `stream` chooses events, or a list of one object; raises as the others."""
    asked = body.get("stream")
    stream = asked is not None and bool(read_value(BOOLEAN, "stream", asked))
    return _read(body, context, stream=stream, is_list=True)


def _read(body: dict[str, Any], context: Context, *, stream: bool, is_list: bool = False) -> Read:
    if not isinstance(body.get("inputs"), str):
        raise RequestError("is missing, or is not a string", field="inputs")
    given = body.get("parameters") or {}
    if not isinstance(given, dict):
        raise RequestError("is not an object", field="parameters", value=given)
    named = {n: v for n, v in given.items() if v is not None} | {"stream": stream}
    targets = {FIELDS[name].target for name in named if name in FIELDS}
    named |= {n: v for n, v in _DEFAULTS.items() if FIELDS[n].target not in targets}
    if stream and named.get("best_of", 1) != 1:
        raise RequestError("is not for streams", field="best_of", value=named["best_of"])
    # Its server samples where one of these is given, whatever `do_sample` says.
    if not _SAMPLING.isdisjoint(named):
        named["do_sample"] = True
    # LMI passes over what it does not serve; some of that this client's own server serves.
    read_parameters(named, dropped=[], refuses_unserved=True)
    _refuse_others(given)
    _refuse_misplaced(body)
    parsed = read_lmi(body["inputs"], named, replace(context, clients=_SETTINGS), is_body=True)
    reply = parsed.reply.inner if isinstance(parsed.reply, LmiBodyReply) else parsed.reply
    if not isinstance(parsed.work, tuple) or not isinstance(reply, LmiReply):
        raise RequestError("is not a text", field="inputs")
    return Read(parsed.work, TgiForm(reply.requested, is_list=is_list), dropped=parsed.dropped)


def _refuse_others(given: dict[str, Any]) -> None:
    """Refuse other servers' parameters that constrain, select or limit an answer."""
    for name in given.keys() & UNSERVED.keys() - FIELDS.keys():
        value, nothing = given[name], UNSERVED[name]
        if value and value not in nothing:
            accepted = " or ".join([*map(json.dumps, nothing), "nothing"])
            raise RequestError("is not served", field=name, value=value, accepted=accepted)
    for name in given.keys() - FIELDS.keys():
        if given[name] is not None and (plain := plain_name(name)) != name and plain in FIELDS:
            raise RequestError("is not read", field=name, accepted=plain)


def _refuse_misplaced(body: dict[str, Any]) -> None:
    """Refuse a parameter outside of `parameters`, where nobody reads it."""
    for name in body.keys() & {*FIELDS, *_ELSEWHERE} - _AT_TOP:
        if body[name]:
            accepted = f"parameters.{name}" if name in FIELDS else "/v1/chat/completions"
            raise RequestError("is not read there", field=name, accepted=accepted)
