"""The programs of `make clients`: what is installed, and where each is told to find the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

_OF_NPM: Final = ("@", "npm:")
_OPENAI: Final = '`base_url="http://HOST:8080/v1"`'


@dataclass(frozen=True)
class Program:
    name: str
    """Of its environment."""
    title: str
    packages: tuple[str, ...]
    """Exact versions; the first is the program. Those of npm begin with `@` or `npm:`."""
    url: str
    """How it is told where the server is."""
    python: str = "3.11"
    script_of: str = ""
    """A program of the same script, if it is not its own."""
    model: str = "tiny"
    """`obedient`: one that says what its prompt orders, for programs that give a model tools."""
    day: str = "2026-11-26"
    """Nothing newer is installed: with exact versions this is a lock of all that they need."""

    @property
    def script(self) -> str:
        """In tests/clients/scripts."""
        return f"use_{self.script_of or self.name}"

    @property
    def of_npm(self) -> tuple[str, ...]:
        """Return the packages of npm as npm writes them."""
        mine = (each for each in self.packages if each.startswith(_OF_NPM))
        return tuple(each.removeprefix(_OF_NPM[1]).replace("==", "@") for each in mine)

    @property
    def of_python(self) -> tuple[str, ...]:
        return tuple(each for each in self.packages if not each.startswith(_OF_NPM))

    @property
    def version(self) -> str:
        """Of the program itself."""
        return self.packages[0].partition("==")[2]


_agent: Final = partial(Program, model="obedient", day="2026-11-27")


PROGRAMS: Final = {
    program.name: program
    for program in (
        Program(
            "pydantic_ai",
            "`pydantic-ai-slim[openai]`",
            ("pydantic-ai-slim[openai]==2.68.0",),
            _OPENAI,
        ),
        Program("openai_agents", "`openai-agents`", ("openai-agents==0.24.0",), _OPENAI),
        Program("instructor", "`instructor`", ("instructor==1.17.0",), _OPENAI),
        Program("dspy", "DSPy, `openai/`", ("dspy==3.4.1",), '`api_base="http://HOST:8080/v1"`'),
        Program(
            "litellm_before",
            "LiteLLM before 1.109",
            ("litellm[proxy]==1.108.7",),
            "as the newer ones above",
            script_of="litellm",
        ),
        Program(
            "litellm_proxy",
            "LiteLLM's proxy, `hosted_vllm/`",
            ("litellm[proxy]==1.108.7",),
            "`api_base: http://HOST:8080/v1` in its configuration",
        ),
        Program(
            "text_generation",
            "`text-generation`",
            ("text-generation==0.7.0",),
            '`"http://HOST:8080"`',
        ),
        Program(
            "outlines",
            "`outlines`, `from_vllm`, `from_openai`, `from_tgi`",
            ("outlines[openai]==1.3.3", "huggingface_hub==1.33.0"),
            _OPENAI,
        ),
        Program(
            "openai_cli", "the command of `openai` 1", ("openai==1.109.1",), "`OPENAI_BASE_URL`"
        ),
        Program(
            "lm_eval",
            "lm-eval, `local-completions`, `local-chat-completions`",
            ("lm-eval[api]==0.4.13", "transformers==5.19.0"),
            "`base_url=http://HOST:8080/v1/completions`",
        ),
        Program(
            "inference_perf",
            "inference-perf, `completion`, `chat`, `anthropic_messages`",
            ("inference-perf==0.7.0",),
            "`base_url: http://HOST:8080`",
            python="3.12",
        ),
        Program(
            "guidellm",
            "GuideLLM, `/v1/completions`, `/v1/chat/completions`, `/v1/responses`",
            ("guidellm==0.8.1", "torch==2.13.0"),
            "`--target http://HOST:8080`",
        ),
        _agent(
            "codex",
            "Codex CLI, a loop with its tool",
            ("@openai/codex==0.171.0",),
            '`base_url = "http://HOST:8080/v1"`, `wire_api = "responses"` of a provider in its '
            "`config.toml`",
        ),
        _agent(
            "claude_code",
            "Claude Code, a loop with its tool",
            ("@anthropic-ai/claude-code==2.1.332",),
            "`ANTHROPIC_BASE_URL=http://HOST:8080`, `ANTHROPIC_AUTH_TOKEN`",
        ),
        _agent(
            "llama_index",
            "LlamaIndex, `OpenAILike` and an agent",
            ("llama-index-llms-openai-like==0.8.1",),
            '`api_base="http://HOST:8080/v1"`',
            script_of="llama_index_openai",
        ),
        _agent(
            "opencode",
            "opencode, a loop with its tool over chats, Anthropic's messages and Responses",
            ("npm:opencode-ai==1.18.33",),
            '`"baseURL": "http://HOST:8080/v1"` of a provider in its `opencode.json`',
        ),
        _agent(
            "aider",
            "aider, an edit of a file; `openai/`, `anthropic/`",
            ("aider-chat==0.86.2",),
            "`OPENAI_API_BASE=http://HOST:8080/v1`, `ANTHROPIC_API_BASE=http://HOST:8080`",
            python="3.12",
        ),
        _agent(
            "llm",
            "the command `llm`, with a function of the user's",
            ("llm==0.36",),
            '`api_base: "http://HOST:8080/v1"` in its `extra-openai-models.yaml`',
        ),
        _agent(
            "haystack",
            "Haystack, an agent over chats, Responses and Anthropic's messages",
            ("haystack-ai==3.4.1", "anthropic-haystack==8.0.1"),
            '`api_base_url="http://HOST:8080/v1"`',
            python="3.12",
        ),
        _agent(
            "agno",
            "Agno, an agent over chats, Responses and Anthropic's messages",
            ("agno==3.1.10", "openai==3.57.0", "anthropic==2.14.0"),
            _OPENAI,
            python="3.12",
        ),
        _agent(
            "mirascope",
            "Mirascope, tools over chats, Responses and Anthropic's messages",
            ("mirascope[anthropic,openai]==2.8.2",),
            "`OPENAI_BASE_URL`, `ANTHROPIC_BASE_URL`",
            python="3.12",
        ),
        _agent(
            "semantic_kernel",
            "Semantic Kernel, an agent with a plugin",
            ("semantic-kernel==1.45.0",),
            _OPENAI,
            python="3.12",
        ),
        _agent(
            "inspect",
            "Inspect, `openai-api/`, `vllm/`, `anthropic/`",
            ("inspect-ai==0.3.285", "openai==3.57.0", "anthropic==2.14.0"),
            "`LMI_BASE_URL`, `VLLM_BASE_URL`, `ANTHROPIC_BASE_URL`",
            python="3.12",
        ),
    )
}
