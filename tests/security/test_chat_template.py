"""A client that brings a chat template of its own: a program, run by the server."""

from typing import Any

import pytest

from lmi_backend.engines.tokens import chat_ids
from lmi_backend.errors import RequestError


class Tokenizer:
    """`apply_chat_template` with the names of transformers 5.19; it must not be called."""

    def apply_chat_template(  # noqa: PLR0917  the names and their order are the library's
        self,
        conversation: Any,
        tools: Any = None,
        documents: Any = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        padding: Any = False,
        truncation: bool = False,
        max_length: int | None = None,
        return_tensors: Any = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: Any = None,
        **kwargs: Any,
    ) -> list[int]:
        assert chat_template is None
        return [1, len(kwargs)]


LOOP = "{% for i in range(10 ** 12) %}{% endfor %}"


@pytest.mark.parametrize(
    "options", [{"chat_template": LOOP}, {"max_length": 1}, {"tokenizer_kwargs": {"a": 1}}]
)
def test_what_is_not_a_variable_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="chat_template_kwargs has") as refused:
        chat_ids(Tokenizer(), [{"role": "user", "content": "a"}], options)
    assert "the model's own chat template" in str(refused.value)


def test_variables_reach_the_template() -> None:
    options = {"enable_thinking": False, "add_generation_prompt": True, "documents": []}
    assert chat_ids(Tokenizer(), [], options) == [1, 1]
