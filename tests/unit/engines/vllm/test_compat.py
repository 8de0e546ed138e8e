"""What is called of vLLM's engine, where releases differ."""

import argparse
import os
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import compat, fast_paths, names


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
