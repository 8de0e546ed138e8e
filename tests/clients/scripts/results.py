"""Run the functions of a script and print what each returned as one JSON object."""

import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any

# Of the front end.
URL = os.environ.get("TEST_URL", "")
KEY = os.environ.get("TEST_KEY", "")
MODEL = os.environ.get("TEST_MODEL", "")
# Of Triton.
HTTP = os.environ.get("TEST_HTTP", "")
GRPC = os.environ.get("TEST_GRPC", "")


def run(names: dict[str, Any]) -> None:
    """Run a module's public functions; what one raises is its result too, with what HTTP said."""
    own = {
        name: value
        for name, value in names.items()
        if inspect.isfunction(value) and value.__module__ == "__main__" and name[0] != "_"
    }
    wanted = os.environ.get("TEST_ONLY", "").strip(",")
    results = {name: _result(own[name]) for name in own if wanted in ("", name)}
    sys.stdout.write(json.dumps(results, default=str) + "\n")


def _result(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # noqa: BLE001  a test says which are expected
        result = {"raised": type(error).__name__, "text": str(error)[:1000]}
        if (status := getattr(error, "status_code", None)) is None:
            return result
        has_id = getattr(error, "request_id", None) is not None
        return result | {"status": status, "body": getattr(error, "body", None), "has_id": has_id}
