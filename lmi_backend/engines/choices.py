"""Members that constrain, select or limit an answer, at a path whose server does not read them.

Each release of a server reads its own members, and other members at each path: `max_tokens` is none
of Responses, `seed` none of Anthropic's messages. What a server does not read it passes over.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from lmi_backend.clients.fields import UNLIMITED
from lmi_backend.errors import RequestError

_LIMITS: Final = ("max_tokens", "max_output_tokens")
OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            *("max_new_tokens", "n_predict", "num_predict", "max_completion_tokens"),
            "max_tokens_to_sample",
        ),
        _LIMITS,
    ),
    **dict.fromkeys(_LIMITS, _LIMITS),
    **dict.fromkeys(("min_new_tokens", "min_length"), ("min_tokens",)),
    **dict.fromkeys(("random_seed", "sampling_seed"), ("seed",)),
    **dict.fromkeys(("stopping_strings", "stop_sequence"), ("stop", "stop_sequences")),
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
    "allowed_token_ids": (),
    "bad_words": (),
    "chat_template": (),
    "chat_template_kwargs": (),
    "continue_final_message": (),
    "documents": (),
    "echo": (),
    "frequency_penalty": (0,),
    "ignore_eos": (),
    "include_stop_str_in_output": (),
    "instructions": (),
    "length_penalty": (0, 1),
    "logit_bias": (),
    "logprob_token_ids": (),
    "logprobs": (0,),
    "max_tool_calls": (),
    "min_p": (0,),
    "min_tokens": (0,),
    "n": (1,),
    "output_config": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (0,),
    "reasoning": (),
    "repetition_detection": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "seed": (),
    "skip_special_tokens": (True,),
    "stop_token_ids": (),
    "structured_outputs": (),
    "suffix": (),
    "system": (),
    "text": ({"format": {"type": "text"}},),
    "thinking": (),
    "thinking_token_budget": (-1,),
    "tools": (),
    "top_k": (-1, 0),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "truncation": ("disabled",),
    "truncation_side": (),
    "use_beam_search": (),
}
"""Members that vLLM's server reads at some path, or in some release. Each has the values without
effect, in addition to null, false and what is empty."""
_WORDS: Final = {
    "reasoning": "reasoning_effort",
    "response_format": "text.format, output_config.format",
    "structured_outputs": "text.format, output_config.format",
    "text": "response_format",
    "output_config": "response_format",
    "thinking": "chat_template_kwargs",
    "instructions": "a message of the system",
    "system": "a message of the system",
}
"""What may be sent instead, where a path reads it."""
SWITCHES: Final[Mapping[str, str]] = {
    "enable_thinking": "chat_template_kwargs",
    "think": "chat_template_kwargs",
}
"""Members of others that have an effect where they are false too, and what is accepted."""
EMBEDDED: Final[dict[str, tuple[Any, ...]]] = {
    "embedding_types": (["float"],),
    "input_type": (),
    "late_chunking": (),
    "output_dimension": (),
    "output_dtype": ("float",),
    "prompt_name": (),
    "task": (),
    "truncate": ("NONE",),
    "truncate_dim": (),
}
"""Members of embeddings with the values without effect. The names are those of Cohere, Jina, Voyage
and Hugging Face."""
_NOTHING: Final[tuple[Any, ...]] = (None, False, "", [], {})


def renamed(fields: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Return what members by other names become; None for one that goes.

    Args:
        fields: the members of a body.
        read: the members that the server reads at its path.

    Raises:
        RequestError: two of them contradict each other, or the server reads no such member.
    """
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
            raise _unread(name, value, ("nothing",))
        value = [value] if target == "stop_sequences" and isinstance(value, str) else value
        own = changed.get(target, fields.get(target))
        if own not in (None, value):
            raise RequestError("contradicts another name of it", field=name, accepted=target)
        changed[target] = value
    return changed


def refuse_unlimited(fields: Mapping[str, Any]) -> None:
    """Refuse an answer without a limit where the limit is 16 tokens if none is given.

    Raises:
        RequestError: naming the member.
    """
    for name, nothing in UNLIMITED.items():
        if fields.get(name) == nothing:
            raise RequestError("is not served", field=name, value=nothing, accepted="at least 1")


def continued(fields: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
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


def refuse_unread(fields: Mapping[str, Any], read: Collection[str]) -> None:
    """Refuse a member with an effect that the server does not read at its path.

    Raises:
        RequestError: with what is accepted.
    """
    for name, nothing in OF_SERVERS.items():
        if (value := fields.get(name)) is None:
            continue
        if name not in read and value not in (*_NOTHING, *nothing):
            words = [*map(json.dumps, nothing), "nothing"]
            raise _unread(name, value, [_WORDS[name], *words] if name in _WORDS else words)


def _unread(name: str, value: Any, accepted: Collection[str]) -> RequestError:
    problem = "is not read at this path"
    return RequestError(problem, field=name, value=value, accepted=" or ".join(accepted))
