"""The recorded signatures of the real library, which the double's largest calls have."""

import functools
import json
import os
from collections.abc import Callable
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

RECORD = json.loads(
    (Path(__file__).parents[3] / "data" / "signatures" / "trtllm.json").read_text("utf-8")
)
VERSION = os.environ.get("DOUBLE_OF_TRTLLM", RECORD["version"])


def recorded(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a method the signature of a call of this release; it gets all arguments by name."""
    taken = RECORD["other calls"].get(VERSION, {}).get(path, RECORD["calls"][path])
    either = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature(
        [
            Parameter("self", either),
            *(
                Parameter(name, either, default=Parameter.empty if value == "required" else value)
                for name, value in taken.items()
            ),
        ]
    )

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            bound = signature.bind(self, *arguments, **named)
            bound.apply_defaults()
            return method(**bound.arguments)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate
