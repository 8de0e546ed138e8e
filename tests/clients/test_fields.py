"""What types of clients' own libraries have and nest is served, refused, or known as harmless."""

import ast
import json
import re
import subprocess
from typing import Any

import pytest

from lmi_backend.clients import unserved
from lmi_backend.clients.parameters import FIELDS, IGNORED, NEUTRAL
from lmi_backend.engines import body_members
from tests.support.run.places import CLIENTS_PYTHON, ENGINE_PYTHON

# Prints each type that a root nests, with its fields. Those of a kind that is refused have none.
WALK = """
import dataclasses, json, sys
from typing import Literal, get_args, get_origin, get_type_hints
import anthropic.types as messages
import openai.types.responses as responses
from anthropic.types import beta
from anthropic.types.beta.message_create_params import MessageCreateParamsBase as Beta
from anthropic.types.message_count_tokens_params import MessageCountTokensParams as Count
from anthropic.types.message_create_params import MessageCreateParamsBase as Message
from huggingface_hub import ChatCompletionInput, TextGenerationInput
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as Chat
from openai.types.completion_create_params import CompletionCreateParamsBase as Completion
from openai.types.responses.response_create_params import ResponseCreateParamsBase as Response

known = json.loads(sys.argv[1])

def types_in(kind):
    if dataclasses.is_dataclass(kind) or hasattr(kind, "__total__"):
        yield kind
    for each in get_args(kind):
        yield from types_in(each)

def values_of(hint):
    if get_origin(hint) is Literal:
        return {*get_args(hint)}
    return {each for inner in get_args(hint) for each in values_of(inner)}

def kinds(types):
    return {value for each in types for value in values_of(get_type_hints(each).get("type"))}

def without(union, served):
    return {each for each in types_in(union) if kinds([each]) - {*served}}

def walk(root, refused=frozenset(), passed=known["passed"]):
    found, waiting, seen = {}, [*types_in(root)], set()
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        own = kinds([kind])
        found.setdefault(kind.__name__, [])
        if own and own <= refused:
            continue
        hints = get_type_hints(kind)
        found[kind.__name__] = sorted({*found[kind.__name__], *hints})
        for name, hint in hints.items():
            if name not in passed:
                waiting.extend(types_in(hint))
    return found

def refused_of(module, prefix):
    block, tool, result = (
        getattr(module, f"{prefix}{name}")
        for name in ("ContentBlockParam", "ToolUnionParam", "ToolResultBlockParam")
    )
    of_servers = {each for each in types_in(tool) if "input_schema" not in get_type_hints(each)}
    parts = without(get_type_hints(result)["content"], known["parts"])
    return kinds(without(block, known["blocks"]) | parts | of_servers)

tools = without(responses.ToolParam, known["tools"])
items = without(responses.ResponseInputItemParam, known["items"])
print(json.dumps({
    "openai chat": walk(Chat), "huggingface chat": walk(ChatCompletionInput),
    "tgi": walk(TextGenerationInput, passed=()),
    "openai response": walk(Response, kinds(tools | items)), "openai completion": walk(Completion),
    "anthropic count": walk(Count, refused_of(messages, "")),
    "anthropic": walk(Message, refused_of(messages, "")),
    "anthropic beta": walk(Beta, refused_of(beta, "Beta")),
    "tools": sorted(kinds(tools)),
    "items": sorted(kinds(each for each in items if "role" in get_type_hints(each))),
}))
"""
VLLM = next(ENGINE_PYTHON.parent.parent.glob("lib/python3.*/site-packages")) / "vllm"
_CHAT = ("entrypoints/openai/chat_completion", "entrypoints/generate/base", "renderers")
_ANTHROPIC = ("entrypoints/anthropic",)
READ_IN = {
    "openai chat": _CHAT,
    "huggingface chat": _CHAT,
    "openai response": ("entrypoints/openai/responses", "entrypoints/generate/base", "renderers"),
    "anthropic": _ANTHROPIC,
    "anthropic beta": _ANTHROPIC,
}
"""Where vLLM's server reads what such bodies nest."""
CHAT, MESSAGE = "CompletionCreateParamsBase", "MessageCreateParamsBase"
SERVER = {
    "openai chat": (CHAT, "openai/chat_completion", "ChatCompletionRequest"),
    "openai completion": (CHAT, "openai/completion", "CompletionRequest"),
    "openai response": ("ResponseCreateParamsBase", "openai/responses", "ResponsesRequest"),
    "anthropic": (MESSAGE, "anthropic", "AnthropicMessagesRequest"),
    "anthropic beta": (MESSAGE, "anthropic", "AnthropicMessagesRequest"),
    "anthropic count": (
        "MessageCountTokensParams", "anthropic", "AnthropicCountTokensRequest"
    ),
    "huggingface chat": (
        "ChatCompletionInput", "openai/chat_completion", "ChatCompletionRequest"
    ),
}  # fmt: skip
"""The type of a library's body, and the class of vLLM's server that reads it."""
ITEMS = (
    "message", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output", "reasoning",
)  # fmt: skip
"""The items of a response that vLLM's server reads; it refuses others that have no role."""
OF_SCHEMAS = {"properties"}


@pytest.fixture(scope="module")
def walked() -> dict[str, Any]:
    known = {
        "passed": [
            *(*unserved.UNSERVED, *unserved.HARMLESS, *unserved.HINTS),
            *unserved.REFUSED,
        ],
        "parts": unserved.PARTS,
        "blocks": _blocks(),
        "tools": ("function", "custom", "namespace"),
        "items": ITEMS,
    }
    command = [str(CLIENTS_PYTHON), "-c", WALK, json.dumps(known)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def _blocks() -> list[str]:
    """Return the types of blocks that vLLM's server takes in a message of Anthropic's."""
    literal = ast.unparse(_class_of("anthropic", "AnthropicContentBlock").body[1])
    return re.findall(r"'(\w+)'", literal)


def _class_of(folder: str, name: str) -> ast.ClassDef:
    source = VLLM / "entrypoints" / folder / "protocol.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    return found


@pytest.mark.parametrize("client", SERVER)
def test_openais_and_anthropics_fields_are_all_known(walked: dict[str, Any], client: str) -> None:
    root, *where = SERVER[client]
    fields = (each.target for each in _class_of(*where).body if isinstance(each, ast.AnnAssign))
    read = {field.id for field in fields if isinstance(field, ast.Name)}
    sent = {*walked[client][root]}
    assert "model" in sent & read
    assert sent - read - {*body_members.NAMES, *unserved.HARMLESS, *unserved.HINTS} == set()


def test_the_fields_of_text_generation_inference_are_all_known(walked: dict[str, Any]) -> None:
    sent = {*walked["tgi"]["TextGenerationInputGenerateParameters"]}
    assert {"temperature", "grammar", "adapter_id"} <= sent
    assert sent - FIELDS.keys() - NEUTRAL.keys() - IGNORED == set()


@pytest.mark.parametrize("client", READ_IN)
def test_what_the_types_of_a_client_nest_is_known(walked: dict[str, Any], client: str) -> None:
    known = {
        *(*unserved.UNSERVED, *unserved.HARMLESS),
        *(*unserved.REFUSED, *unserved.MENDED, *OF_SCHEMAS, *unserved.HINTS),
    }
    for folder in READ_IN[client]:
        for path in (VLLM / folder).rglob("*.py"):
            known.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    assert len(walked[client]) > 10
    unknown = {
        f"{kind}.{name}"
        for kind, names in walked[client].items()
        for name in names
        if name not in known
    }
    assert unknown == set()


def test_what_the_types_of_text_generation_inference_nest_is_known(walked: dict[str, Any]) -> None:
    fields = {name for names in walked["tgi"].values() for name in names}
    assert {"grammar", "value"} <= fields
    assert fields - FIELDS.keys() - {"inputs", "parameters", "type", "value"} == {
        "typical_p", "watermark",
    }  # fmt: skip


def test_each_tool_that_openais_server_runs_is_refused_by_its_type(walked: dict[str, Any]) -> None:
    assert {*walked["tools"]} - {"web_search_2025_08_26"} <= {*unserved.HOSTED}
    assert {"web_search", "mcp", "file_search"} <= {*walked["tools"]}


def test_an_item_that_would_be_taken_for_a_message_is_refused(walked: dict[str, Any]) -> None:
    assert walked["items"] == [*unserved.ITEMS]
