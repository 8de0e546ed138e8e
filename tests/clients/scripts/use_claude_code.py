"""The loop of Claude Code: a call of its tool, the result, and the answer."""

import functools
from typing import Any

from agent_programs import COMMAND, PACKAGES, Agent, agent, order, sent_with
from results import KEY, MODEL, run

TOOL = "Bash"


@functools.cache
def _done() -> tuple[list[dict[str, Any]], Agent, str]:
    """Return the events that it prints, the program, and what its tool wrote."""
    (program,) = PACKAGES.glob("@anthropic-ai/claude-code-*/claude")
    with agent() as claude:
        variables = {
            "CLAUDE_CONFIG_DIR": str(claude.home / ".claude"),
            "ANTHROPIC_BASE_URL": claude.recorder.url,
            "ANTHROPIC_AUTH_TOKEN": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        sizes = ("OPUS", "SONNET", "HAIKU")
        variables |= {f"ANTHROPIC_DEFAULT_{size}_MODEL": MODEL for size in sizes}
        words = [
            str(program), "-p", "--model", MODEL, "--output-format", "stream-json", "--verbose",
            "--allowedTools", TOOL, "--permission-mode", "acceptEdits",
            order(TOOL, command=COMMAND, description="Make a file"),
        ]  # fmt: skip
        return claude.run(words, variables), claude, claude.made


def answer() -> Any:
    """Return how it ended, and what the user reads."""
    last = _done()[0][-1]
    return [last["type"], last["subtype"], last["is_error"], last["result"]]


def tool() -> Any:
    """Return what the tool did, as the program and the disk have it."""
    parts = [
        part
        for event in _done()[0]
        if event["type"] == "user"
        for part in event["message"]["content"]
        if part["type"] == "tool_result"
    ]
    return [[[part["is_error"], part["content"]] for part in parts], _done()[2]]


def result() -> Any:
    """Return the kinds of what the last request says from the call on, and the result."""
    kinds, text = [], ""
    for message in _done()[1].recorder.exchanges[-1]["body"]["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] in ("tool_use", "tool_result"):
                kinds.append([message["role"], part["type"]])
                text = str(part.get("content", ""))
    return [kinds, text]


CASES = {
    "sent": lambda: sent_with(TOOL, _done()[1].posts),
    # Whom it asks but the server.
    "others": lambda: _done()[1].recorder.others,
}

if __name__ == "__main__":
    run(globals() | CASES)
