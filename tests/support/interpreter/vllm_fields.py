"""Write the fields of vLLM's bodies that can hold text, lists or objects, as JSON.

Runs in the engine's Python.
"""

import importlib
import inspect
import json
import pkgutil
import sys

import vllm.entrypoints
from pydantic import BaseModel

HOLDS = ("str", "list", "List", "dict", "Dict", "Any")


def main() -> None:
    fields = set()
    for module in pkgutil.walk_packages(vllm.entrypoints.__path__, "vllm.entrypoints."):
        # One needs a library of Cohere's; its fields are those of the pooling paths.
        if not module.name.endswith("protocol") or module.name.startswith(
            "vllm.entrypoints.cohere"
        ):
            continue
        for name, kind in vars(importlib.import_module(module.name)).items():
            if name.endswith("Request") and inspect.isclass(kind) and issubclass(kind, BaseModel):
                fields |= {
                    field
                    for field, info in kind.model_fields.items()
                    if any(word in str(info.annotation) for word in HOLDS)
                }
    json.dump(sorted(fields), sys.stdout)


if __name__ == "__main__":
    main()
