from typing import Any


def update_llm_args_with_extra_dict(
    llm_args: dict[str, Any], llm_args_dict: dict[str, Any], extra_llm_api_options: Any = None
) -> dict[str, Any]:
    """The real one makes typed configs of the objects; LLM checks names here."""
    return llm_args | llm_args_dict
