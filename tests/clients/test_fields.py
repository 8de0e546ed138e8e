"""Each field that a client's own library may send is served, refused or known to be harmless."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

from lmi_backend.clients import unserved
from lmi_backend.clients.parameters import FIELDS, IGNORED, NEUTRAL
from lmi_backend.engines import body_members
from tests.support.places import CLIENTS_PYTHON, ENGINE_PYTHON

# The types by which the libraries name what they send.
PRINT = """
import json
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as Beta
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import MessageCreateParamsBase
from huggingface_hub import ChatCompletionInput, TextGenerationInputGenerateParameters
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat
from openai.types.completion_create_params import CompletionCreateParamsBase as Completion
from openai.types.responses.response_create_params import ResponseCreateParamsBase
types = {
    "openai chat": Chat, "openai completion": Completion,
    "openai response": ResponseCreateParamsBase, "anthropic": MessageCreateParamsBase,
    "anthropic beta": Beta, "anthropic count": MessageCountTokensParams,
    "huggingface chat": ChatCompletionInput, "tgi": TextGenerationInputGenerateParameters,
}
print(json.dumps({name: sorted(each.__annotations__) for name, each in types.items()}))
"""
SERVER = {
    "openai chat": ("openai/chat_completion", "ChatCompletionRequest"),
    "openai completion": ("openai/completion", "CompletionRequest"),
    "openai response": ("openai/responses", "ResponsesRequest"),
    "anthropic": ("anthropic", "AnthropicMessagesRequest"),
    "anthropic beta": ("anthropic", "AnthropicMessagesRequest"),
    "anthropic count": ("anthropic", "AnthropicCountTokensRequest"),
    "huggingface chat": ("openai/chat_completion", "ChatCompletionRequest"),
}
"""The class of vLLM's server that reads such a body."""


@pytest.fixture(scope="module")
def sent() -> dict[str, set[str]]:
    command = [str(CLIENTS_PYTHON), "-c", PRINT]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {name: set(fields) for name, fields in json.loads(done.stdout).items()}


def _read_by_vllm(folder: str, name: str) -> set[str]:
    packages = next(ENGINE_PYTHON.parent.parent.glob("lib/python3.*/site-packages"))
    source = packages / "vllm" / "entrypoints" / folder / "protocol.py"
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    fields = (each.target for each in found.body if isinstance(each, ast.AnnAssign))
    return {field.id for field in fields if isinstance(field, ast.Name)}


@pytest.mark.parametrize("client", SERVER)
def test_openais_and_anthropics_fields_are_all_known(
    sent: dict[str, set[str]], client: str
) -> None:
    read = _read_by_vllm(*SERVER[client])
    known = {*body_members.NAMES, *unserved.HARMLESS, *unserved.HINTS}
    assert "model" in sent[client] & read
    assert sent[client] - read - known == set()


def test_the_fields_of_text_generation_inference_are_all_known(sent: dict[str, set[str]]) -> None:
    assert {"temperature", "grammar", "adapter_id"} <= sent["tgi"]
    assert sent["tgi"] - FIELDS.keys() - NEUTRAL.keys() - IGNORED == set()
