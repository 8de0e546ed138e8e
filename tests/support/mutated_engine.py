"""Serve the tiny model with a mutated vLLM, and judge what comes of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lmi_backend.errors import LmiError
from tests.support import battery
from tests.support.harness import started
from tests.support.mutated_vllm import Tree, package_of, write
from tests.support.mutations import Mutation

_OPTIONS: Final = {
    "option.enable_prefix_caching": "false",
    "option.hang_timeout": "25",
    "option.model_loading_timeout": "150",
    "option.migration_timeout": "40",
    "option.structured_outputs_config": '{"backend": "xgrammar", "disable_any_whitespace": true}',
}
_PARSER: Final = {"option.enable_auto_tool_choice": "true", "option.tool_call_parser": "hermes"}
"""With which chats are not plain, and so none is known; without, no tool is called."""


@dataclass
class Outcome:
    """What a served model did."""

    refused: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    off: dict[str, str] = field(default_factory=dict)
    """Fast path to why it is off."""
    output: str = ""
    """What the worker wrote."""
    seconds: float = 0.0

    @property
    def is_silent(self) -> bool:
        """Whether a fast path is off and no warning names it."""
        return not all(f"is not as expected: {name} (" in self.output for name in self.off)

    def differences(self, expected: Outcome) -> dict[str, str]:
        """Return which answers differ, and where first."""
        return {
            name: battery.difference(self.answers.get(name), answer)
            for name, answer in expected.answers.items()
            if battery.difference(self.answers.get(name), answer)
        }


def serve(
    properties: dict[str, Any], python: Path, folder: Path, *, has_parser: bool = True
) -> Outcome:
    """Serve the model with an interpreter; send it the battery.

    Args:
        has_parser: whether its server parses tools.
    """
    began, outcome = time.monotonic(), Outcome()
    given = properties | _OPTIONS | {"option.pythonExecutable": str(python)}
    given |= _PARSER if has_parser else {}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with started(given, folder) as engine:
            outcome.answers = battery.answers(engine)
            (worker,) = engine.service.snapshot().workers
            outcome.off = {name: why for name, why, _ in worker.stats.fast_paths if why}
            outcome.output = "\n".join(engine.output)
    except LmiError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
    outcome.seconds = time.monotonic() - began
    return outcome


def mutate(mutations: Sequence[Mutation], environment: Path, folder: Path) -> Path:
    """Make an environment whose vLLM has all these mutations; return its interpreter."""
    tree = Tree(package_of(environment))
    # A module that has moved is no longer where the others look.
    for mutation in sorted(mutations, key=lambda each: each.kind == "moved"):
        mutation.apply(tree)
    shutil.rmtree(folder, ignore_errors=True)
    return write(tree, environment, folder)
