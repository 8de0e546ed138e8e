"""Chat and embeddings: what vLLM's own HTTP server reads, and its arguments."""

from __future__ import annotations

from typing import Final

from lmi_backend.options.kinds import BOOL, FREE_TEXT, TEXT, choice
from lmi_backend.options.option import Option

FRONT_END: Final = "front_end "
"""How the plan field of an argument of the server begins; its name follows."""

ENABLE_AUTO_TOOL_CHOICE: Final = Option(
    name="option.enable_auto_tool_choice",
    kind=BOOL,
    default=False,
    scope="chat",
    plan_field=FRONT_END + "enable_auto_tool_choice",
    help="Let the model decide whether to call a tool; needs option.tool_call_parser.",
)
TOOL_CALL_PARSER: Final = Option(
    name="option.tool_call_parser",
    kind=TEXT,
    default="",
    scope="chat",
    plan_field=FRONT_END + "tool_call_parser",
    help="vLLM's parser of the model's tool calls, such as hermes or llama3_json.",
)
CHAT_TEMPLATE: Final = Option(
    name="option.chat_template",
    kind=FREE_TEXT,
    default="",
    scope="chat",
    plan_field=FRONT_END + "chat_template",
    help="Chat template in place of the model's own: a file, relative to the model, or its text.",
)
CHAT_TEMPLATE_CONTENT_FORMAT: Final = Option(
    name="option.chat_template_content_format",
    kind=choice("auto", "string", "openai"),
    default="auto",
    scope="chat",
    plan_field=FRONT_END + "chat_template_content_format",
    help="Whether the template gets a message's content as a string or as OpenAI's parts.",
)
NORMALIZE: Final = Option(
    name="option.normalize",
    kind=BOOL,
    default=True,
    scope="embedding",
    plan_field="normalize",
    help="Scale embeddings to length 1.",
)
