"""What OpenAI's bodies contain under names that vLLM's server does not read where it stands.

An older vLLM, Text Generation Inference, SGLang, llama.cpp and others have their own names for what
constrains, selects or limits an answer. Each release of vLLM's server reads its own, and others at
each path: `max_tokens` is none of Responses. It ignores names that it does not read: the client
would get an unconstrained answer with status 200. Here such a member becomes what is read, or is
refused by its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from lmi_backend.clients.openai import CHATS, COMPLETIONS, EMBEDDINGS
from lmi_backend.clients.parameters import UNLIMITED
from lmi_backend.clients.unserved import HARMLESS, UNSERVED, each_of, plain_name
from lmi_backend.clients.values import bare_schema, is_openais, read_format
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
_ELSEWHERE: Final = {"/v1/responses": "text.format", "/v1/messages": "output_config.format"}
"""Path to the member that holds its constraints."""
_GENERATING: Final = (CHATS, COMPLETIONS, *_ELSEWHERE)
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
_MEANT: Final = (NAMES | {*_READ}) - HARMLESS.keys()


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
            raise RequestError("is not read", field=name, accepted=accepted)


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
    kept = {name: value for name, value in {**body, **changed}.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _refuse(
    fields: Mapping[str, Any], refused: Mapping[str, tuple[Any, ...]], read: Collection[str]
) -> None:
    """Refuse a member with an effect that the server does not read at its path."""
    for name in (each for each in fields if each in refused):
        value, nothing = fields[name], refused[name]
        if name == "best_of":
            # The best of as many answers as are shown is each of them.
            shown = fields.get("n") or 1
            nothing = (1,) if shown == 1 else (1, shown)
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
    found = _constraints(given)
    if not found:
        return {}
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
            return dict.fromkeys(found)
    elif own or form or len(structures.keys() - {_WHITE_SPACE}) > 1:
        raise _twice(found)
    return dict.fromkeys(found) | {_STRUCTURES: structures}


def _own_format(given: Mapping[str, Any]) -> dict[str, Any]:
    form = given.get(_FORMAT)
    return read_format(_FORMAT, form) if isinstance(form, dict) else {}


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
