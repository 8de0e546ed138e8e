"""The loop of opencode over its three ways to a server: chats, Anthropic's messages, Responses."""

import functools
import json
from typing import Any

from agent_programs import COMMAND, PACKAGES, agent, order
from results import KEY, MODEL, run

COMPATIBLE = {"npm": "@ai-sdk/openai-compatible", "name": "lmi"}
"""A provider that opencode does not know by its name."""


@functools.cache
def _done(provider: str) -> tuple[list[str], str, list[list[Any]]]:
    """Return the texts that it prints, what its tool wrote, and its exchanges."""
    # One build runs on older processors too.
    (program,) = PACKAGES.glob("opencode-linux-*-baseline/bin/opencode")
    with agent() as opencode:
        limit = {"limit": {"context": 100_000, "output": 4_000}}
        options = {"baseURL": f"{opencode.recorder.url}/v1", "apiKey": KEY}
        settings = {
            "provider": {
                provider: {"options": options, "models": {MODEL: {"name": MODEL} | limit}}
                | (COMPATIBLE if provider == "lmi" else {})
            },
            "autoupdate": False,
            "share": "disabled",
        }
        (opencode.work / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
        words = [str(program), "run", "--pure", "--auto", "--format", "json", "-m"]
        events = opencode.run(
            [*words, f"{provider}/{MODEL}"],
            # It works where `PWD` says.
            {"PWD": str(opencode.work), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
            # Of its arguments it would quote what has spaces.
            input=order("bash", command=COMMAND, description="makes a file"),
        )
        # It asks for a title beside them, without tools.
        sent = [
            [each["path"], each["status"], each["body"].get("stream")]
            for each in opencode.posts
            if each["body"].get("tools")
        ]
        texts = [event["part"]["text"] for event in events if event["type"] == "text"]
        return texts, opencode.made, sent


CASES = {
    "chat": lambda: _done("lmi"),
    "messages": lambda: _done("anthropic"),
    "responses": lambda: _done("openai"),
}

if __name__ == "__main__":
    run(globals() | CASES)
