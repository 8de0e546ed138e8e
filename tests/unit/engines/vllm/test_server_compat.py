"""What of vLLM's server is called, how errors are cut before it, and prompts that are shown."""

import sys
from argparse import ArgumentParser
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route

from lmi_backend.engines.vllm import compat, names, vllm_server
from lmi_backend.engines.vllm.http_app import respond
from lmi_backend.engines.vllm.vllm_server import EchoedPrompt
from lmi_backend.errors import ConfigurationError
from lmi_backend.generation import HttpChunk, HttpRequest

LONG = "x" * 200_000


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("vllm.made_up")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_message_is_cut_whatever_its_parameter_is_called(module: Any) -> None:
    module.sanitize_message = lambda text, **_: text
    compat.cut_messages()
    assert len(module.sanitize_message(LONG)) < len(LONG)
    assert len(module.sanitize_message(text=LONG)) < len(LONG)
    assert module.sanitize_message(None) is None
    assert module.sanitize_message(
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    ) == (
        '"auto" tool choice requires option.enable_auto_tool_choice and option.tool_call_parser '
        "to be set"
    )
    assert module.sanitize_message(same := "a--b-c, --d, ---e-f, `--G-h`") == same


def test_a_server_that_cleans_no_error_where_it_is_looked_for_is_said(module: Any) -> None:
    module.clean_message = lambda text: text
    with pytest.raises(LookupError, match="no module of it has sanitize_message"):
        compat.cut_messages()


def test_what_makes_no_parser_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "vllm_version", "0.99")
    monkeypatch.setitem(vars(names), "FlexibleArgumentParser", ArgumentParser)
    monkeypatch.setitem(vars(names), "make_arg_parser", lambda own: (own, None))
    with pytest.raises(ConfigurationError, match="make_arg_parser gives a tuple"):
        vllm_server.argument_parser()
    monkeypatch.setitem(vars(names), "make_arg_parser", lambda own: own)
    assert vllm_server.argument_parser().parse_args([]) is not None


@pytest.mark.parametrize("is_built", [False, True])
async def test_an_application_answers_though_nothing_can_count_its_requests(is_built: bool) -> None:
    """Of FastAPI 0.138 a route may have no path, which prometheus-fastapi-instrumentator reads."""

    class PrometheusInstrumentatorMiddleware:
        def __init__(self, app: Any) -> None: ...

        async def __call__(self, *_: Any) -> None:
            raise AttributeError("'_IncludedRouter' object has no attribute 'path'")

    async def answer(_: Any) -> Response:
        return Response(b"yes")

    app = Starlette(
        routes=[Route("/", answer, methods=["POST"])],
        middleware=[Middleware(PrometheusInstrumentatorMiddleware), Middleware(CORSMiddleware)],
    )
    if is_built:
        app.middleware_stack = app.build_middleware_stack()
    own = vllm_server.uncounted(app)
    assert [each.cls for each in own.user_middleware] == [CORSMiddleware]
    chunks: list[HttpChunk] = []
    await respond(own, HttpRequest("/", b"{}"), chunks.append)
    assert [(each.status, each.data) for each in chunks] == [(200, b"yes")]


def test_a_server_without_a_part_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "vllm_version", "0.99")
    with pytest.raises(ConfigurationError, match="no openai_serving_models"):
        vllm_server.models(SimpleNamespace(state=State({"args": None})))


OF_PROMPT = [None, {5: -1.0}]


def _output(logprobs: Any, *ids: list[int]) -> Any:
    outputs = [SimpleNamespace(text="a", token_ids=each) for each in ids]
    return SimpleNamespace(prompt_logprobs=logprobs, outputs=outputs)


def test_an_answer_whose_first_token_was_merged_with_anothers_second_has_the_prompts() -> None:
    echoed = EchoedPrompt(SimpleNamespace(n=2), is_all=False)
    first, merged, last = _output(OF_PROMPT, [1]), _output([], [2], [3]), _output([], [4])
    for output in (first, merged, last):
        assert echoed.mended(output).prompt_logprobs == OF_PROMPT
    assert [each.token_ids for each in merged.outputs] == [[2], [3]]


@pytest.mark.parametrize(
    ("given", "is_echoed", "prompt", "found"),
    [
        ({"type": "token", "prompt_token_ids": [1]}, True, None, ""),
        ({"type": "token", "prompt_token_ids": [1]}, False, None, None),
        ({"type": "token", "prompt_token_ids": [1]}, True, "a", "a"),
        ({"type": "token", "prompt_token_ids": [1, 5], "prompt": "a"}, True, None, None),
        ({"type": "embeds"}, True, None, None),
        ("a", True, None, None),
    ],
)
def test_an_empty_text_that_the_server_leaves_out_is_empty(
    given: Any, prompt: str | None, found: str | None, *, is_echoed: bool
) -> None:
    output = _output(OF_PROMPT, [1])
    output.prompt = prompt
    echoed = EchoedPrompt(SimpleNamespace(n=1), given, is_all=False, is_echoed=is_echoed)
    assert echoed.mended(output).prompt == found
