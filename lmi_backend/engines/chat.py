"""Chats to prompts, by the template that Hugging Face's tokenizers bring."""

from __future__ import annotations

from typing import Any

from lmi_backend.errors import RequestError


def chat_ids(tokenizer: Any, messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
    """Return the token ids of a chat.

    Raises:
        RequestError: the model has no template, or it refuses the messages.
    """
    try:
        ids = tokenizer.apply_chat_template(
            messages, **options | {"tokenize": True, "return_dict": False}
        )
    except Exception as error:
        # A template is a program of the model's author, and raises what it likes.
        problem = f"are refused by the model's chat template: {error}"
        raise RequestError(problem, field="messages") from error
    return list(ids)
