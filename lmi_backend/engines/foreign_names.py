"""What OpenAI's bodies contain under names that vLLM's server does not read.

An older vLLM, Text Generation Inference, SGLang, llama.cpp and others have their own names for what
constrains an answer, or selects its adapter. vLLM's server ignores names that it does not know: the
client would get an unconstrained answer with status 200. Here such a member becomes what vLLM
reads, or is refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS, EMBEDDINGS
from lmi_backend.clients.response_formats import bare_schema, is_openais, read_format
from lmi_backend.clients.unserved_names import UNSERVED
from lmi_backend.engines import choices
from lmi_backend.engines.tool_choices import chosen
from lmi_backend.errors import RequestError

_FORMAT: Final = "response_format"
_STRUCTURES: Final = "structured_outputs"
_WHITE_SPACE: Final = "whitespace_pattern"
ENCODING: Final = "encoding_format"
"""Of embeddings. A null is told from nothing, which is an empty text."""
CONSTRAINTS: Final = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
    "guided_whitespace_pattern": _WHITE_SPACE,
    "json_schema": "json",
    "regex": "regex",
    "ebnf": "grammar",
    "grammar": "grammar",
    "regex_pattern": "regex",
    "grammar_string": "grammar",
}
"""Name to its member of `structured_outputs`. The guided_ names are those of vLLM before 0.12,
`regex` and `ebnf` are SGLang's. `json_schema` and a `grammar` that is a text are llama.cpp's. A
`grammar` that is an object is Text Generation Inference's. The last two are tabbyAPI's."""
ADAPTERS: Final = ("adapter_id", "adapters", "adapter", "lora_name", "lora_adapter")
"""Names of Text Generation Inference, LMI, and others; vLLM takes an adapter as `model`."""
_ELSEWHERE: Final = {"/v1/responses": "text.format", "/v1/messages": "output_config.format"}
"""Path to the member that holds its constraints."""
_GENERATING: Final = (CHATS, COMPLETIONS, *_ELSEWHERE)
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})

VALUES: Final = tuple(
    dict.fromkeys(
        (
            *("n", _FORMAT, _STRUCTURES, *CONSTRAINTS, *ADAPTERS),
            *(*UNSERVED, *choices.SWITCHES, *choices.EMBEDDED, *choices.OTHER_NAMES),
        )
    )
)
"""Members of a body whose values are read."""
NAMES: Final = (*VALUES, *choices.OF_SERVERS, choices.SAMPLES)
"""Members of a body that are looked at."""
_PLACES: Final = {name: place for place, name in enumerate(dict.fromkeys(NAMES))}


def changes(fields: Mapping[str, Any], path: str, read: Collection[str] = ()) -> dict[str, Any]:
    """Return what members of a body have to become; None for one that goes. Empty for most bodies.

    Args:
        fields: the members of `NAMES` that a body has, where None is none, and of `ENCODING`.
        path: where it came to.
        read: the members that the server reads there; nothing where it does not tell.

    Raises:
        RequestError: a member cannot be served, or two contradict each other.
    """
    # Most bodies have few of so many.
    names = sorted(fields.keys() & _PLACES, key=_PLACES.__getitem__)
    given = {name: fields[name] for name in names if fields[name] not in _NOTHING}
    # To OpenAI's clients null is the default, and vLLM's server refuses it.
    nulls = {ENCODING: None} if fields.get(ENCODING, "") is None else {}
    if path not in (*_GENERATING, EMBEDDINGS):
        return nulls
    changed = nulls | _adapter(given) | chosen(fields, path)
    if path == EMBEDDINGS:
        _refuse_unserved(given, choices.EMBEDDED, read)
        return changed
    _refuse(fields, given, read)
    if path == COMPLETIONS:
        choices.refuse_unlimited(fields)
    if read:
        changed |= choices.renamed(fields, read)
        changed |= choices.continued(fields, read) if path == CHATS else {}
    found = _constraints(given)
    if not found:
        return changed
    if path in _ELSEWHERE:
        (name, *_) = found
        raise RequestError(f"is not read at {path}", field=name, accepted=_ELSEWHERE[path])
    structures: dict[str, Any] = {}
    for name, value in (item for each in found.values() for item in each.items()):
        if name in structures:
            raise _twice(found)
        structures[name] = value
    own = given.get(_STRUCTURES) or {}
    form = _own_format(given) if _FORMAT not in found else {}
    if structures.keys() == {_WHITE_SPACE}:
        # It says how another constraint is met, wherever that stands.
        structures |= own or form
        found |= {_FORMAT: form} if form and not own else {}
        if len(structures) == 1:
            return changed | dict.fromkeys(found)
    elif own or form or len(structures.keys() - {_WHITE_SPACE}) > 1:
        raise _twice(found)
    return changed | dict.fromkeys(found) | {_STRUCTURES: structures}


def _own_format(given: Mapping[str, Any]) -> dict[str, Any]:
    form = given.get(_FORMAT)
    return read_format(_FORMAT, form) if isinstance(form, dict) else {}


def rewritten(body: Mapping[str, Any], changed: Mapping[str, Any]) -> bytes:
    """Return a body with what `changes` says."""
    kept = {name: value for name, value in {**body, **changed}.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _refuse(fields: Mapping[str, Any], given: Mapping[str, Any], read: Collection[str]) -> None:
    if not given.keys().isdisjoint(UNSERVED):
        # The best of as many answers as are shown is each of them.
        _refuse_unserved(given, UNSERVED | {"best_of": (1, given.get("n", 1))}, read)
    for name, accepted in choices.SWITCHES.items():
        if fields.get(name) is not None and name not in read:
            raise RequestError("is not served", field=name, accepted=accepted)
    # OpenRouter's clients write true, at which vLLM's server fails with 500.
    if not isinstance(own := given.get(_STRUCTURES, {}), dict):
        raise RequestError("is not an object", field=_STRUCTURES, value=own)
    if read:
        choices.refuse_unread(fields, read)


def _refuse_unserved(
    given: Mapping[str, Any], unserved: Mapping[str, tuple[Any, ...]], read: Collection[str]
) -> None:
    for name, nothing in unserved.items():
        value = given.get(name)
        is_used = value is not None and value not in nothing and not _keeps_all(value)
        if is_used and name not in read:
            accepted = " or ".join([*map(json.dumps, nothing), "nothing"])
            raise RequestError("is not served", field=name, value=value, accepted=accepted)


def _keeps_all(value: Any) -> bool:
    """Tell whether edits of a context, as Claude Code sends them, leave all of it."""
    edits = value.get("edits") if isinstance(value, dict) else None
    return isinstance(edits, list) and all(
        isinstance(each, dict) and each.get("keep") == "all" for each in edits
    )


def _twice(found: Mapping[str, Any]) -> RequestError:
    return RequestError("constrain the answer in two ways", field=" and ".join([*found]))


def _adapter(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the adapter of a body as its `model`."""
    if given.keys().isdisjoint(ADAPTERS):
        return {}
    asked = {name: given[name] for name in ADAPTERS if name in given}
    names = {name: _only(name, value) for name, value in asked.items()}
    if len({*names.values()}) > 1:
        raise RequestError("name different adapters", field=" and ".join(names))
    return {**dict.fromkeys(names), "model": next(iter(names.values()))} if names else {}


def _only(field: str, value: Any) -> str:
    name = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(name, str):
        raise RequestError("is not the name of an adapter", field=field, value=value)
    return name


def _constraints(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each member that constrains by another's name, and what it is to vLLM."""
    found = {}
    for name, kind in CONSTRAINTS.items():
        if name in given:
            value = given[name]
            is_tgi = name == "grammar" and isinstance(value, dict)
            value = bare_schema(value) if kind == "json" else value
            found[name] = read_format(name, value) if is_tgi else {kind: value}
    form = given.get(_FORMAT)
    if isinstance(form, dict) and not is_openais(form):
        found[_FORMAT] = read_format(_FORMAT, form)
    return found
