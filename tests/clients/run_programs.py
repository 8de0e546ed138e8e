"""The long form of these tests, of `make clients`: pytest passes over this file unless it is named.

A program is a row of tools/client_programs.py, a script, and what the script's functions return.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import run_clients
from client_programs import PROGRAMS
from install import InstallError

from tests.clients.conftest import KEY, run_script
from tests.support.doubles.obedient import obedient
from tests.support.servers.serving import Served


class Raised:
    """Equals what a script says of an error of this name whose text has these words."""

    def __init__(self, name: str, words: str = "") -> None:
        self.name, self.words = name, words

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, dict)
            and other.get("raised") == self.name
            and self.words in other["text"]
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Raised({self.name!r}, {self.words!r})"


def _each(cases: str, value: object) -> dict[str, Any]:
    """The same value for each of these cases."""
    return dict.fromkeys(cases.split(), value)


ROME = "The capital of Italy is Rome."
CITY = {"city": "Rome"}
ANSWER = ["The file says Rome."]
REPLY, SUNNY = "It is Rome.", "It is sunny."
EXPECTED: dict[str, dict[str, Any]] = {
    "pydantic_ai": {
        **_each("chat streamed responses", ROME),
        "tool": ["travel"],
        "structured": CITY,
        "unknown_model": Raised("ModelNotFoundError", "404"),
        "wrong_key": Raised("ModelAuthenticationError", "401"),
    },
    "openai_agents": {
        **_each("chat streamed responses", ROME),
        "structured": CITY,
        "tool": ["travel"],
        "unknown_model": Raised("NotFoundError", "404"),
        "wrong_key": Raised("AuthenticationError", "401"),
    },
    "instructor": {
        **_each("json_schema partial", CITY),
        "tool": ["City"],
        "unknown_model": Raised("InstructorRetryException", "404"),
    },
    "dspy": {
        **_each("text messages", [ROME]),
        "completion": True,
        "responses": ROME,
        "wrong_key": Raised("LMAuthError"),
    },
    "litellm_before": {
        "chat": [ROME, True],
        **_each("chat_streamed hosted_vllm anthropic sagemaker_chat sagemaker_chat_streamed", ROME),
        "text_completion": " Rome.",
        **_each("sagemaker sagemaker_streamed", True),
        "unknown_model": Raised("NotFoundError"),
        "bad_value": Raised("BadRequestError"),
        "wrong_key": Raised("AuthenticationError"),
    },
    "litellm_proxy": {
        **_each("chat streamed messages responses", ROME),
        "bad_value": Raised("BadRequestError"),
    },
    "text_generation": {
        "generate": [" Rome.", "eos_token"],
        "streamed": [" Rome.", " Rome."],
        "asynchronous": " Rome.",
        "grammar": [3, True],
        "unknown_model": Raised("ValidationError", "The model `none` does not exist"),
    },
    "outlines": {
        **_each("text streamed", ROME),
        **_each("choice regex tgi_regex", True),
        **_each("structured openai_structured tgi_structured", CITY),
    },
    "openai_cli": {
        **_each("chat streamed", ROME),
        "completion": "Rome.",
        "models": True,
        **_each("unknown_model wrong_key", [1, True]),
    },
    "lm_eval": _each("loglikelihood generate_until chat", 1.0),
    "inference_perf": _each("completions completions_streamed chats_streamed messages", [6, 0]),
    "guidellm": _each(
        "completions completions_streamed chats_streamed responses_streamed", [6, 0, [8]]
    ),
    "codex": {
        "answer": ANSWER,
        "tool": [[[0, "Rome\n"]], "Rome\n"],
        "sent": [["/v1/responses", 200, True, True]] * 2,
        "result": [["function_call", "function_call_output"], "Rome"],
    },
    "claude_code": {
        "answer": ["result", "success", False, *ANSWER],
        "tool": [[[False, "Rome"]], "Rome\n"],
        "sent": [["/v1/messages", 200, True, True]] * 2,
        "result": [[["assistant", "tool_use"], ["user", "tool_result"]], "Rome"],
        "others": [],
    },
    "opencode": {
        "chat": [ANSWER, "Rome\n", [["/v1/chat/completions", 200, True]] * 2],
        "messages": [ANSWER, "Rome\n", [["/v1/messages", 200, True]] * 2],
        "responses": [ANSWER, "Rome\n", [["/v1/responses", 200, True]] * 2],
    },
    "aider": _each("whole difference not_streamed messages", [0, "Rome\n"]),
    "llama_index": {
        **_each("completion chat streamed", "It is Rome."),
        "structured": CITY,
        **_each("agent agent_streamed", "It is sunny."),
        "unknown_model": Raised("NotFoundError", "404"),
    },
    "llm": {
        **_each("streamed whole completion", [0, REPLY]),
        "structured": [0, '{"city": "Rome"}'],
        **_each("tool tool_whole", [0, SUNNY]),
    },
    "haystack": {
        "chat": REPLY,
        "structured": '{"city": "Rome"}',
        **_each(
            "agent agent_streamed responses responses_streamed messages messages_streamed",
            [SUNNY, True],
        ),
    },
    "agno": {
        "chat": REPLY,
        **_each(
            "agent agent_streamed responses responses_streamed messages messages_streamed", SUNNY
        ),
        **_each("structured messages_structured", CITY),
    },
    "mirascope": {
        "chat": REPLY,
        "structured": CITY,
        **_each(
            "tool tool_streamed responses responses_streamed messages messages_streamed", SUNNY
        ),
    },
    "semantic_kernel": {
        "chat": REPLY,
        "structured": '{"city": "Rome"}',
        **_each("tool tool_streamed", SUNNY),
    },
    "inspect": _each("chat vllm tool tool_streamed tool_vllm responses messages", 1.0),
}
CHOSEN = [name for name in os.environ.get(run_clients.CHOSEN, "").split(",") if name]
Ran = Callable[[str], Any]


@pytest.fixture(scope="session")
def ordered(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """A model that says what its prompt orders."""
    with obedient(tmp_path_factory.mktemp("obedient"), tiny_properties) as server:
        yield server


@pytest.fixture(scope="session")
def ran(request: pytest.FixtureRequest) -> Ran:
    """Install a program and run its script once; record what it did at once."""
    known: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in known:
            # Started for the first program that wants it.
            model = PROGRAMS[name].model
            server = request.getfixturevalue("ordered" if model == "obedient" else "served")
            reached = {"URL": f"http://{server.front_end}", "KEY": KEY, "MODEL": model}
            known[name] = _run(name, reached)
        return known[name]

    return run


def _run(name: str, reached: dict[str, str]) -> Any:
    program = PROGRAMS[name]
    try:
        with run_clients.environment(program) as python:
            results = run_script(program.script, python, **reached)
    except InstallError as error:
        run_clients.write(program, run_clients.not_installed(str(error)))
        return error
    except (AssertionError, subprocess.TimeoutExpired) as error:
        # The script itself has ended early: none of its cases has passed.
        ended = {"raised": type(error).__name__, "text": str(error)[-1000:]}
        results = dict.fromkeys(EXPECTED[name], ended)
    run_clients.write(program, run_clients.judged(results, EXPECTED[name]))
    return results


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in CHOSEN for case in EXPECTED[name]]
)
def test_a_program(ran: Ran, name: str, case: str) -> None:
    results = ran(name)
    if isinstance(results, InstallError):
        pytest.fail(f"{name} is not installed: {results}")
    assert results[case] == EXPECTED[name][case]
