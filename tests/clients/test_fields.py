"""Each field that a client's own library may send is served, refused or known to be harmless."""

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from lmi_backend.clients import unserved_names
from lmi_backend.clients.fields import FIELDS, IGNORED, NEUTRAL
from lmi_backend.engines import foreign_names
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

# The types that they nest in members that are looked at: type to names.
WALK = """
import dataclasses, json, sys
from typing import get_args, get_type_hints
from anthropic.types import (
    ImageBlockParam, TextBlockParam, ToolParam, ToolResultBlockParam, ToolUseBlockParam,
)
from anthropic.types.message_create_params import (
    MetadataParam, OutputConfigParam, ThinkingConfigParam, ToolChoiceParam,
)
from huggingface_hub import ChatCompletionInput
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat

def walk(kind, found):
    for each in get_args(kind):
        walk(each, found)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__total__"):
        # What a browser of Anthropic's says, and where a text comes from, asks for nothing.
        if kind.__name__ not in found and not kind.__name__.startswith(("Browser", "Citation")):
            hints = get_type_hints(kind)
            found[kind.__name__] = list(hints)
            for name, hint in hints.items():
                if name not in sys.argv[1:]:
                    walk(hint, found)
    return found

anthropic = {}
for kind in (
    ImageBlockParam, TextBlockParam, ToolParam, ToolResultBlockParam, ToolUseBlockParam,
    MetadataParam, OutputConfigParam, ThinkingConfigParam, ToolChoiceParam,
):
    walk(kind, anthropic)
types = {
    "openai chat": walk(Chat, {}), "huggingface chat": walk(ChatCompletionInput, {}),
    "anthropic": anthropic,
}
print(json.dumps(types))
"""
_CHAT = ("entrypoints/openai/chat_completion", "entrypoints/generate/base", "renderers")
READ_IN = {
    "openai chat": _CHAT,
    "huggingface chat": _CHAT,
    "anthropic": ("entrypoints/anthropic",),
}
"""Where vLLM's server reads what such bodies nest."""
HINTS = {
    "prompt_cache_breakpoint", "ttl", "eager_input_streaming", "caller", "transformations",
    "oversized_image", "properties", "user_id", "title", "context", "input_examples",
}  # fmt: skip
"""Hints about caches, sizes and speed, labels, examples, and a schema's members, which are one."""
ELSEWHERE = {
    "file_data", "file_id", "filename", "citations", "allowed_callers", "toolset_name", "tool_id",
}  # fmt: skip
"""Of files and tools that OpenAI's or Anthropic's own servers hold, run or quote."""


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
    known = {*foreign_names.NAMES, *unserved_names.HARMLESS}
    assert "model" in sent[client] & read
    assert sent[client] - read - known == set()


def test_the_fields_of_text_generation_inference_are_all_known(sent: dict[str, set[str]]) -> None:
    assert {"temperature", "grammar", "adapter_id"} <= sent["tgi"]
    assert sent["tgi"] - FIELDS.keys() - NEUTRAL.keys() - IGNORED == set()


def test_what_their_types_nest_is_known_too() -> None:
    passed = [*unserved_names.UNSERVED, *unserved_names.HARMLESS]
    command = [str(CLIENTS_PYTHON), "-c", WALK, *passed]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    nested: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    assert "JSONSchema" in nested["openai chat"]
    assert "ChatCompletionInputJSONSchema" in nested["huggingface chat"]
    known = {*passed, *HINTS, *ELSEWHERE}
    for client, types in nested.items():
        words = known | _words(*READ_IN[client])
        unknown = {
            f"{kind}.{name}" for kind, names in types.items() for name in names if name not in words
        }
        assert unknown == set(), client


def _words(*folders: str) -> set[str]:
    """Return every word of some folders of vLLM's."""
    packages = next(ENGINE_PYTHON.parent.parent.glob("lib/python3.*/site-packages"))
    files = [path for folder in folders for path in (packages / "vllm" / folder).rglob("*.py")]
    return {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
