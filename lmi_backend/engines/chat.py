"""Chats to prompts, by the template that Hugging Face's tokenizers bring."""

from __future__ import annotations

import inspect
from typing import Any, Final

from lmi_backend.errors import RequestError

_FROM_A_CLIENT: Final = frozenset({"add_generation_prompt", "continue_final_message", "documents"})
"""Arguments of `apply_chat_template` that a body may give; what it has no name for, the template
gets as a variable."""


def chat_ids(tokenizer: Any, messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
    """Return the token ids of a chat.

    Raises:
        RequestError: the model has no template, it refuses the messages, or an option is not one of
            its variables; a template of the client's own, for one, is a program that may never end.
    """
    arguments = inspect.signature(tokenizer.apply_chat_template).parameters.keys()
    if refused := options.keys() & arguments - _FROM_A_CLIENT:
        problem = f"has {', '.join(sorted(refused))}"
        accepted = "variables of the model's own chat template"
        raise RequestError(problem, field="chat_template_kwargs", accepted=accepted)
    try:
        ids = tokenizer.apply_chat_template(
            messages, **options | {"tokenize": True, "return_dict": False}
        )
    except Exception as error:
        # A template is a program of the model's author, and raises what it likes.
        problem = f"are refused by the model's chat template: {error}"
        raise RequestError(problem, field="messages") from error
    return list(ids)
