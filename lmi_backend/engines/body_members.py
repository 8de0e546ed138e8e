"""What bodies contain that vLLM's server does not read where it stands.

An older vLLM, Text Generation Inference, SGLang, llama.cpp and others have their own names for what
constrains, selects or limits an answer. Each release of vLLM's server reads its own, and others at
each path: `max_tokens` is none of Responses. It ignores names that it does not read: the client
would get an unconstrained answer with status 200. Here such a member becomes what is read, or is
refused by its name.

Of what a response or an Anthropic message nests, it reads the first part of an earlier answer, and
no document in a tool's result. It passes over tools that OpenAI's own server would run, and over a
choice among the tools that a chat or a response may call.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from lmi_backend.clients.openai import CHATS, COMPLETIONS, EMBEDDINGS
from lmi_backend.clients.parameters import UNLIMITED
from lmi_backend.clients.unserved import (
    HOSTED,
    ITEMS,
    OFFERED,
    PARTS,
    REASONING,
    UNSERVED,
    each_of,
    plain_name,
)
from lmi_backend.clients.values import bare_schema, is_openais, read_format
from lmi_backend.errors import RequestError

RESPONSES: Final = "/v1/responses"
_CHOICE: Final = "tool_choice"
_ALLOWED: Final = "allowed_tools"
_NAMED: Final = ("function", "custom")
_MESSAGES: Final = "/v1/messages"
_FORCED: Final = ("any", "tool")
"""Of Anthropic's messages: a tool has to be called."""
_ADDITION: Final = "tool_addition"
_MODES: Final = ("auto", "required")


def chosen(fields: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what `tools` and `tool_choice` become; nothing where vLLM reads them as they are.

    Tools that may not be called are left out.

    Raises:
        RequestError: a tool is chosen that OpenAI's own server would run, or a choice is no choice.
    """
    choice = fields.get(_CHOICE)
    if not isinstance(choice, dict) or path not in (CHATS, RESPONSES, _MESSAGES):
        return {}
    kind = choice.get("type")
    if path == _MESSAGES:
        if kind in _FORCED and not (fields.get("tools") or _adds_tools(fields.get("messages"))):
            raise RequestError("needs tools", field=_CHOICE, value=choice, accepted="auto, none")
        return {}
    if kind == _ALLOWED:
        return _allowed(choice.get(_ALLOWED) if path == CHATS else choice, fields.get("tools"))
    if path == RESPONSES and kind not in _NAMED:
        accepted = '"auto", "none", "required", or a type of ' + ", ".join((*_NAMED, _ALLOWED))
        raise RequestError("is not served", field=_CHOICE, value=choice, accepted=accepted)
    return {}


def _adds_tools(messages: Any) -> bool:
    """Tell whether a message of Anthropic's adds a tool, which vLLM 0.32 and later read."""
    listed = messages if isinstance(messages, list) else ()
    contents = [each.get("content") for each in listed if isinstance(each, dict)]
    parts = (part for each in contents if isinstance(each, list) for part in each)
    return any(isinstance(part, dict) and part.get("type") == _ADDITION for part in parts)


def _allowed(choice: Any, tools: Any) -> dict[str, Any]:
    mode = choice.get("mode") if isinstance(choice, dict) else None
    listed = choice.get("tools") if isinstance(choice, dict) else None
    if mode not in _MODES or not isinstance(listed, list):
        accepted = 'a mode of "auto" or "required", and tools'
        raise RequestError("is not a choice", field=_CHOICE, value=choice, accepted=accepted)
    names = {_name(each) for each in listed}
    allowed = [each for each in tools or () if _name(each) in names - {""}]
    if {_name(each) for each in allowed} != names:
        raise RequestError("names what is none of tools", field=_CHOICE, value=choice)
    return {"tools": allowed, _CHOICE: mode}


def _name(tool: Any) -> str:
    """Return the name of a function, in a chat or in a response; empty for other tools."""
    if not isinstance(tool, dict) or tool.get("type") not in _NAMED:
        return ""
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    return name if isinstance(name, str) else ""


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
_LIMITS: Final = ("max_tokens", "max_output_tokens")
OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **each_of(
        """
        max_new_tokens n_predict num_predict max_completion_tokens max_tokens_to_sample max_tokens
        max_output_tokens
        """,
        *_LIMITS,
    ),
    **each_of("min_new_tokens min_length", "min_tokens"),
    **each_of("random_seed sampling_seed", "seed"),
    **each_of("stopping_strings stop_sequence", "stop", "stop_sequences"),
    "ban_eos_token": ("ignore_eos",),
    "no_stop_trim": ("include_stop_str_in_output",),
    "num_return_sequences": ("n",),
    "stop": ("stop_sequences",),
    "stop_sequences": ("stop",),
    "p": ("top_p",),
    "k": ("top_k",),
}
"""A member to those with the same meaning: the first that the path's server reads gets its value.
They are Hugging Face's, llama.cpp's, Ollama's, Mistral's, SGLang's, Cohere's, KoboldCpp's,
text-generation-webui's, Anthropic's older ones, and other paths'."""
SAMPLES: Final = "do_sample"
"""Hugging Face's and GLM's: where it is false, the likeliest token is chosen."""
BEGUN: Final = ("prefix", "partial")
"""Members of a chat's last message that make it the beginning of the answer: DeepSeek's and
Mistral's, Moonshot's and Qwen's."""
_CONTINUES: Final = "continue_final_message"
OF_SERVERS: Final[Mapping[str, tuple[Any, ...]]] = {
    **each_of(
        """
        allowed_token_ids bad_words chat_template chat_template_kwargs
        continue_final_message documents echo ignore_eos include_stop_str_in_output
        instructions logit_bias logprob_token_ids max_tool_calls output_config reasoning
        repetition_detection seed stop_token_ids structured_outputs suffix system thinking
        tools truncate_prompt_tokens truncation_side use_beam_search
        """,
    ),
    **each_of(
        """
        frequency_penalty logprobs min_p min_tokens presence_penalty prompt_logprobs
        top_logprobs
        """,
        0,
    ),
    "n": (1,),
    "repetition_penalty": (1,),
    "length_penalty": (0, 1),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "text": ({"format": {"type": "text"}},),
    "thinking_token_budget": (-1,),
    "top_k": (-1, 0),
    "truncation": ("disabled",),
}
"""Members that vLLM's server reads at some path, or in some release. Each has the values without
effect, in addition to null, false and what is empty."""
SWITCHES: Final = ("enable_thinking", "think")
"""Members of others that have an effect where they are false too."""
EMBEDDED: Final[Mapping[str, tuple[Any, ...]]] = {
    **each_of(
        """
        input_type late_chunking output_dimension prompt_name task truncate_dim
        """,
    ),
    "embedding_types": (["float"],),
    "output_dtype": ("float",),
    "truncate": ("NONE",),
}
"""Members of embeddings with the values without effect. The names are those of Cohere, Jina, Voyage
and Hugging Face."""
INSTEAD: Final = {
    "reasoning": "reasoning_effort",
    _FORMAT: "text.format, output_config.format",
    _STRUCTURES: "text.format, output_config.format",
    "text": _FORMAT,
    "output_config": _FORMAT,
    **dict.fromkeys(("thinking", *SWITCHES), "chat_template_kwargs"),
    **dict.fromkeys(("instructions", "system"), "a message of the system"),
}
"""What may be sent instead, where a path reads it."""
_OTHER_MEMBERS: Final = {"/v1/responses": "text.format", "/v1/messages": "output_config.format"}
"""Path to the member that holds its constraints."""
_GENERATING: Final = (CHATS, COMPLETIONS, *_OTHER_MEMBERS)
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})
_REFUSED: Final = {**OF_SERVERS, **UNSERVED, **dict.fromkeys(SWITCHES, ())}
"""Members of a body that generates, which are refused with an effect where they are not read."""

VALUES: Final = frozenset(
    {"n", _FORMAT, _STRUCTURES, *CONSTRAINTS, *ADAPTERS}
    | {*UNSERVED, *SWITCHES, *EMBEDDED, *OTHER_NAMES}
)
"""Members of a body whose values are read."""
NAMES: Final = VALUES | {*OF_SERVERS, SAMPLES}
"""Members of a body that are looked at."""
_READ: Final = (
    "frequency_penalty", "logprobs", "max_completion_tokens", "max_output_tokens", "max_tokens",
    "parallel_tool_calls", "presence_penalty", "reasoning_effort", _FORMAT, "seed", "stop",
    "stop_sequences", "temperature", "tool_choice", "tools", "top_k", "top_logprobs", "top_p",
)  # fmt: skip
"""Members that a server reads, where it does not tell them."""
_MEANT: Final = NAMES | {*_READ}


def check_spelling(names: Collection[str]) -> None:
    """Raise RequestError for a name with capitals or hyphens that is another one without them.

    vLLM's server passes over it: `maxTokens`, `guided-json`.
    """
    # Most bodies have plain names alone.
    together = "".join(names)
    if together.islower() and "-" not in together:
        return
    for name in names:
        plain = plain_name(name)
        if plain != name and plain in _MEANT:
            accepted = "nothing" if plain in UNSERVED else plain
            raise RequestError("is another spelling", field=name, accepted=accepted)


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
    given = {name: fields[name] for name in fields.keys() & NAMES if fields[name] not in _NOTHING}
    # To OpenAI's clients null is the default, and vLLM's server refuses it.
    nulls = {ENCODING: None} if fields.get(ENCODING, "") is None else {}
    if path not in (*_GENERATING, EMBEDDINGS):
        return nulls
    changed = nulls | _adapter(given) | chosen(fields, path)
    if path == EMBEDDINGS:
        _refuse(fields, EMBEDDED, read)
        return changed
    # Where the server does not tell, it may read what it reads anywhere.
    _refuse(fields, _REFUSED, read or OF_SERVERS)
    # OpenRouter's clients write true, at which vLLM's server fails with 500.
    if not isinstance(own := given.get(_STRUCTURES, {}), dict):
        raise RequestError("is not an object", field=_STRUCTURES, value=own)
    if path == COMPLETIONS:
        _refuse_unlimited(fields)
    if read:
        changed |= _renamed(fields, read)
        changed |= _continued(fields, read) if path == CHATS else {}
    return changed | _constrained(given, path)


def rewritten(body: Mapping[str, Any], changed: Mapping[str, Any]) -> bytes:
    members = {name: value for name, value in {**body, **changed}.items() if value is not None}
    return json.dumps(members, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _refuse(
    fields: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]], read: Collection[str]
) -> None:
    """Refuse a member with an effect that the server does not read at its path."""
    for name in (each for each in fields if each in refused):
        value, nothing = fields[name], refused[name]
        if name == "best_of":
            # The best of as many answers as are shown is each of them.
            count = fields.get("n") or 1
            nothing = (1,) if count == 1 else (1, count)
        is_nothing = value in (None, *nothing) or (value in _NOTHING and name not in SWITCHES)
        if not (is_nothing or name in read or _keeps_all(value)):
            problem = "is not read at this path" if name in OF_SERVERS else "is not served"
            words = (*filter(None, [INSTEAD.get(name)]), *map(json.dumps, nothing))
            raise _refusal(problem, name, value, *words, "nothing")


def _refusal(problem: str, name: str, value: Any, *accepted: str) -> RequestError:
    return RequestError(problem, field=name, value=value, accepted=" or ".join(accepted))


def _keeps_all(value: Any) -> bool:
    """Tell whether edits of a context, as Claude Code sends them, leave all of it."""
    edits = value.get("edits") if isinstance(value, dict) else None
    return isinstance(edits, list) and all(
        isinstance(each, dict) and each.get("keep") == "all" for each in edits
    )


def _refuse_unlimited(fields: Mapping[str, Any]) -> None:
    """Refuse an answer without a limit where the limit is 16 tokens if none is given."""
    for name, nothing in UNLIMITED.items():
        if fields.get(name) == nothing:
            raise _refusal("is not served", name, nothing, "at least 1")


def _renamed(fields: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Return what members by other names become; None for one that goes."""
    changed: dict[str, Any] = {}
    if fields.get(SAMPLES) is False and SAMPLES not in read:
        changed |= {SAMPLES: None, "temperature": 0}
    # Most bodies have none of them.
    if fields.keys().isdisjoint(OTHER_NAMES):
        return changed
    for name, targets in OTHER_NAMES.items():
        if (value := fields.get(name)) is None or name in read:
            continue
        changed[name] = None
        if value == UNLIMITED.get(name) or value is False:
            continue
        target = next((each for each in targets if each in read), "")
        if not target:
            raise _refusal("is not read at this path", name, value, "nothing")
        value = [value] if target == "stop_sequences" and isinstance(value, str) else value
        own = changed.get(target, fields.get(target))
        if own not in (None, value):
            raise RequestError("contradicts another name of it", field=name, accepted=target)
        changed[target] = value
    return changed


def _continued(fields: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Return how a chat is continued whose last message says that it is the answer's beginning."""
    messages = fields.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    is_begun = (
        isinstance(last, dict)
        and last.get("role") == "assistant"
        and any(last.get(name) is True for name in BEGUN)
    )
    if not is_begun or _CONTINUES not in read or fields.get(_CONTINUES) is not None:
        return {}
    return {_CONTINUES: True, "add_generation_prompt": False}


def _constrained(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what members become that constrain the answer by another's name."""
    constraints = _constraints(given)
    if not constraints:
        return {}
    if path in _OTHER_MEMBERS:
        (name, *_) = constraints
        raise RequestError(f"is not read at {path}", field=name, accepted=_OTHER_MEMBERS[path])
    structures: dict[str, Any] = {}
    for name, value in (item for each in constraints.values() for item in each.items()):
        if name in structures:
            raise _twice(constraints)
        structures[name] = value
    own = given.get(_STRUCTURES) or {}
    form = given.get(_FORMAT) if _FORMAT not in constraints else None
    form = read_format(_FORMAT, form) if isinstance(form, dict) else {}
    if structures.keys() == {_WHITE_SPACE}:
        # It says how another constraint is met, wherever that stands.
        structures |= own or form
        constraints |= {_FORMAT: form} if form and not own else {}
        if len(structures) == 1:
            return dict.fromkeys(constraints)
    elif own or form or len(structures.keys() - {_WHITE_SPACE}) > 1:
        raise _twice(constraints)
    return dict.fromkeys(constraints) | {_STRUCTURES: structures}


def _twice(constraints: Mapping[str, Any]) -> RequestError:
    return RequestError("constrain the answer in two ways", field=" and ".join([*constraints]))


def _adapter(given: Mapping[str, Any]) -> dict[str, Any]:
    if given.keys().isdisjoint(ADAPTERS):
        return {}
    names = {name: _only(name, given[name]) for name in ADAPTERS if name in given}
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
    constraints = {}
    for name, kind in CONSTRAINTS.items():
        if name in given:
            value = given[name]
            is_tgi = name == "grammar" and isinstance(value, dict)
            value = bare_schema(value) if kind == "json" else value
            constraints[name] = read_format(name, value) if is_tgi else {kind: value}
    form = given.get(_FORMAT)
    if isinstance(form, dict) and not is_openais(form):
        constraints[_FORMAT] = read_format(_FORMAT, form)
    return constraints


_log = logging.getLogger(__name__)

MESSAGES: Final = ("/v1/messages", "/v1/messages/count_tokens")
_RESULT: Final = "tool_result"
_OF_SYSTEM: Final = ("text", "tool_addition", "tool_removal")
"""Types of the parts of a system message that vLLM's server reads."""
_CALLED_BY_MODEL: Final = "direct"
"""The caller that is the model itself."""
_OF_ASSISTANT: Final = ("output_text", "input_text", "text", "refusal")
"""Types of the parts of an earlier answer in a response."""
_CLEARED: Final = "next_user_message"
_TEXTS: Final = {"content": "reasoning_text", "summary": "summary_text"}
"""Of an item of reasoning: member to the type of its parts."""
_LOGPROBS: Final = "message.output_text.logprobs"
"""Of `include`: without it vLLM's server passes over `top_logprobs`."""
_noted: Final[set[str]] = set()


def check_nested(fields: Mapping[str, Any], path: str, *, runs_tools: bool = False) -> None:
    """Refuse what limits or selects an answer and is not read where it stands.

    Args:
        runs_tools: whether the server has tools of its own for a response.

    Raises:
        RequestError: naming it, with what is accepted.
    """
    if path in MESSAGES:
        _check_messages(fields)
    elif path == RESPONSES:
        _check_response(fields, runs_tools=runs_tools)


def is_mendable(fields: Mapping[str, Any], path: str) -> bool:
    """Tell whether `mended` would change a body."""
    if path in MESSAGES:
        return any(True for _ in _cleared(fields.get("messages")))
    if path != RESPONSES:
        return False
    return bool(fields.get("top_logprobs")) or any(map(_is_mended, _listed(fields.get("input"))))


def mended(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a body as the engine's server reads all of it.

    Messages that are to be gone are left out. Earlier answers are in one part. Log probabilities
    are included where some are wanted.
    """
    if path in MESSAGES:
        gone = {*_cleared(body["messages"])}
        messages = [each for place, each in enumerate(body["messages"]) if place not in gone]
        return {**body, "messages": messages}
    items, included = body.get("input"), body.get("include") or []
    if isinstance(items, list):
        items = [_mended(each) if _is_mended(each) else each for each in items]
    if body.get("top_logprobs") and isinstance(included, list) and _LOGPROBS not in included:
        included = [*included, _LOGPROBS]
    return {**body, "input": items, "include": included or None}


def _check_messages(fields: Mapping[str, Any]) -> None:
    config = fields.get("output_config")
    _refuse_member(config, "task_budget", "output_config")
    form = config.get("format") if isinstance(config, dict) else None
    if isinstance(form, dict) and form.get("schema") is None:
        raise RequestError("has no schema", field="output_config.format", accepted="a schema")
    _check_callers(fields.get("tools"))
    _check_parts("system", fields.get("system"), ("text",))
    for place, message in enumerate(_listed(fields.get("messages"))):
        where, content = f"messages[{place}]", message.get("content")
        _refuse_member(message.get("output_config"), "effort", f"{where}.output_config")
        if message.get("role") == "system":
            _check_parts(where, content, _OF_SYSTEM)
        for part in _listed(content):
            _refuse_member(part.get("source"), "file_id", f"{where}, a source")
            if part.get("type") == _RESULT:
                _check_parts(f"{where}, a {_RESULT}", part.get("content"), PARTS)


def _check_response(fields: Mapping[str, Any], *, runs_tools: bool) -> None:
    for name, nothing in REASONING.items():
        _refuse_member(fields.get("reasoning"), name, "reasoning", nothing)
    for item in _listed(fields.get("input")):
        if item.get("type") in ITEMS:
            raise RequestError("is not served", field=f"an item {item['type']}", accepted="tools")
        for part in (*_listed(item.get("content")), *_listed(item.get("output"))):
            _refuse_member(part, "file_id", str(part.get("type")))
        if item.get("role") == "assistant":
            _check_parts("an earlier answer", item.get("content"), _OF_ASSISTANT)
    tools = [*_listed(fields.get("tools"))]
    _check_callers(tools)
    if runs_tools or fields.get("tool_choice") == "none":
        return
    kinds = [tool.get("type") for tool in tools]
    hosted = [kind for kind in kinds if kind in HOSTED]
    for kind in hosted:
        if kind not in OFFERED or len(hosted) == len(kinds):
            accepted = "function, custom, namespace"
            raise RequestError("is run by nobody here", field=f"a tool {kind}", accepted=accepted)
        if kind not in _noted:
            _noted.add(kind)
            _log.warning("tool %s of a response is left out: nobody runs it (logged once)", kind)


def _check_callers(tools: Any) -> None:
    for tool in _listed(tools):
        callers = tool.get("allowed_callers")
        if isinstance(callers, list) and callers and _CALLED_BY_MODEL not in callers:
            field = "allowed_callers of a tool"
            raise RequestError(
                "is not served", field=field, value=callers, accepted=_CALLED_BY_MODEL
            )


def _check_parts(where: str, parts: Any, read: Collection[str]) -> None:
    for part in _listed(parts):
        if (kind := part.get("type")) not in read:
            accepted = ", ".join(read)
            raise RequestError(
                "is not supported there", field=f"{kind} in {where}", accepted=accepted
            )


def _refuse_member(holder: Any, name: str, where: str, nothing: Any = None) -> None:
    """Refuse a member of an object, unless it has a value without effect."""
    value = holder.get(name) if isinstance(holder, dict) else None
    if value is not None and value != nothing:
        accepted = "nothing" if nothing is None else f"{json.dumps(nothing)} or nothing"
        raise RequestError("is not served", field=f"{where}.{name}", value=value, accepted=accepted)


def _cleared(messages: Any) -> Iterator[int]:
    """Yield the places of messages that are to be gone when the user has written again."""
    roles = [each.get("role") for each in _listed(messages)]
    if "user" not in roles or len(roles) < len(messages):
        return
    last = len(roles) - 1 - roles[::-1].index("user")
    for place, message in enumerate(_listed(messages)):
        if place < last and message.get("clear_at") == _CLEARED:
            yield place


def _is_mended(item: Any) -> bool:
    """Tell whether vLLM's server would read only the first part of an item, or fail at it."""
    if not isinstance(item, dict):
        return False
    if item.get("type") == "reasoning":
        return any(len([*_listed(item.get(name))]) > 1 for name in _TEXTS)
    if isinstance(item.get("output"), list):
        return any(_lacks_detail(part) for part in _listed(item["output"]))
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return False
    return len(content) != 1 or any("refusal" in part for part in _listed(content))


def _mended(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item with all its texts in one part, or with the default of its images."""
    if item.get("type") == "reasoning":
        parts = {name: [*_listed(item.get(name))] for name in _TEXTS}
        joined = {
            name: [{"type": _TEXTS[name], "text": _text(listed)}] for name, listed in parts.items()
            if listed
        }  # fmt: skip
        return {**item, **joined}
    if isinstance(item.get("output"), list):
        output = [
            {**part, "detail": "auto"} if _lacks_detail(part) else part for part in item["output"]
        ]
        return {**item, "output": output}
    part = {"type": "output_text", "text": _text([*_listed(item["content"])]), "annotations": []}
    return {**item, "content": [part]}


def _lacks_detail(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "input_image" and "detail" not in part


def _text(parts: Collection[Mapping[str, Any]]) -> str:
    texts = (part.get("text", part.get("refusal")) for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def _listed(value: Any) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
