"""What is called of vLLM's engine, where releases differ."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import compat, names


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
