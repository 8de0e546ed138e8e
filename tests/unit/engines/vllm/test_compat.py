"""What is called of vLLM's engine: where releases differ, and where one cannot be served."""

import argparse
import asyncio
import os
from abc import ABC
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

import pytest

from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.errors import ConfigurationError


def _older(parser: Any) -> Any:
    return parser


def _of_the_front_end_alone(parser: Any, async_args_only: bool = True) -> Any:
    return None if async_args_only else parser


@pytest.mark.parametrize("add", [_older, _of_the_front_end_alone])
def test_the_parser_has_the_engines_arguments_whatever_is_the_default(
    monkeypatch: pytest.MonkeyPatch, add: Any
) -> None:
    monkeypatch.setitem(vars(names), "AsyncEngineArgs", SimpleNamespace(add_cli_args=add))
    monkeypatch.setitem(vars(names), "FlexibleArgumentParser", argparse.ArgumentParser)
    assert isinstance(compat.argument_parser(), argparse.ArgumentParser)


@pytest.mark.parametrize(
    ("off", "chosen", "expected"),
    [({}, None, "512"), ({}, "64", "64"), ({"own_streams": "a reason"}, None, None)],
)
def test_outputs_of_a_step_are_taken_together_unless_vllm_looks_at_each(
    off: dict[str, str], chosen: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loop would have no other turn for long, then; and who has chosen a number keeps it."""
    name = "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE"
    monkeypatch.setenv(name, chosen or "")
    if chosen is None:
        monkeypatch.delenv(name)
    monkeypatch.setattr(fast_paths, "_off", off)
    seen: list[str | None] = []
    handler = SimpleNamespace(_run_output_handler=lambda: seen.append(os.environ.get(name)))
    compat.take_outputs(handler)
    assert seen == [expected]


RELEASES = "releases that were run"


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "vllm_version", "0.99")


def test_what_lacks_a_member_is_refused_by_the_name_of_what_gave_it() -> None:
    app = SimpleNamespace(routes=[], state=None)
    assert compat.checked(app, "build_app", "routes", "state") is app
    with pytest.raises(ConfigurationError) as caught:
        compat.checked((app, None), "build_app", "routes", "state")
    assert "vLLM 0.99 cannot be served: build_app gives a tuple" in str(caught.value)
    assert "which has no routes, state" in str(caught.value)
    assert RELEASES in str(caught.value)


async def test_a_core_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "ANSWER_SECONDS", 0.01)
    engine = SimpleNamespace(get_supported_tasks=asyncio.Event().wait)
    with pytest.raises(
        ConfigurationError, match="get_supported_tasks does not end in 0 s; releases"
    ):
        await compat.answer_of(engine, "get_supported_tasks")


async def test_what_raises_is_named() -> None:
    async def get_tokenizer() -> None:
        raise LookupError("none")

    with pytest.raises(ConfigurationError) as caught:
        await compat.answer_of(SimpleNamespace(get_tokenizer=get_tokenizer), "get_tokenizer")
    assert "served: AsyncLLM.get_tokenizer raises LookupError: none" in str(caught.value)
    assert RELEASES in str(caught.value)


def test_what_raises_at_our_place_is_named_by_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "EngineCoreClient", None)
    with pytest.raises(ConfigurationError) as caught, compat.naming():
        compat.use_core_client(None)
    assert "`names.EngineCoreClient.make_async_mp_client" in str(caught.value)
    assert "raises AttributeError" in str(caught.value)


def test_a_name_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="served: no AsyncLLM; releases"), compat.naming():
        raise names.MissingNameError("no AsyncLLM")


def test_what_vllm_raises_by_itself_stays() -> None:
    with pytest.raises(TypeError, match="of a model"), compat.naming():
        exec("raise TypeError('of a model')", {})


class Louder:
    def word(self) -> str:
        return super().word().upper()  # type: ignore[misc, no-any-return]


@pytest.mark.parametrize("root", [object, ABC, Generic[TypeVar("T")]])
def test_a_method_is_overridden_whatever_a_class_stands_under(root: Any) -> None:
    """Servers of vLLM 0.23 are under an ABC, which lays objects out otherwise."""

    class Root(root):  # type: ignore[misc]
        def word(self) -> str:
            return "a"

    class Server(Root):
        pass

    server = Server()
    compat.subclass(server, Louder, volume=2)
    compat.subclass(server, Louder)
    assert (server.word(), server.volume) == ("A", 2)  # type: ignore[attr-defined]
    assert isinstance(server, Server)
    assert isinstance(server, Louder)
