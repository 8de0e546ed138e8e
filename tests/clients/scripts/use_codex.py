"""The loop of Codex at `/v1/responses`: a call of its tool, the result, and the answer."""

import functools
import json
from typing import Any

from agent_programs import COMMAND, PACKAGES, agent, order, sent_with
from results import KEY, MODEL, run

TOOL = "exec_command"


@functools.cache
def _done() -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Return the events that it prints, its exchanges, and what its tool wrote."""
    (program,) = PACKAGES.glob("@openai/codex-*/vendor/*/bin/codex")
    with agent() as codex:
        url = f"{codex.recorder.url}/v1"
        server = {"name": "lmi", "base_url": url, "env_key": "SERVER_KEY"}
        settings = {f"model_providers.lmi.{name}": json.dumps(v) for name, v in server.items()}
        settings |= {
            "model_provider": "lmi",
            "model_providers.lmi.wire_api": "responses",
            "analytics.enabled": "false",
            "check_for_update_on_startup": "false",
        }
        words = [
            str(program), "exec", "--json", "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox", "-m", MODEL,
            *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            order(TOOL, cmd=COMMAND),
        ]  # fmt: skip
        events = codex.run(words, {"CODEX_HOME": str(codex.home), "SERVER_KEY": KEY})
        return events, codex.posts, codex.made


def _items(kind: str) -> list[dict[str, Any]]:
    events, _, _ = _done()
    ended = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in ended if item["type"] == kind]


def answer() -> Any:
    """Return what the user reads."""
    return [item["text"] for item in _items("agent_message")]


def tool() -> Any:
    """Return what the tool did, as the program and the disk have it."""
    called = [
        [item["exit_code"], item["aggregated_output"]] for item in _items("command_execution")
    ]
    return [called, _done()[2]]


def result() -> Any:
    """Return the kinds of the last request's items from the call on, and the result's end."""
    items = _done()[1][-1]["body"]["input"]
    begin = [item["type"] for item in items].index("function_call")
    return [[item["type"] for item in items[begin:]], str(items[-1]["output"]).strip()[-4:]]


CASES = {"sent": lambda: sent_with(TOOL, _done()[1])}

if __name__ == "__main__":
    run(globals() | CASES)
