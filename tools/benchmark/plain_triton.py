"""A tritonserver with one model that is not ours: where it is written, and the server's words."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from lmi_backend.supervisor.installation import find_server

CONSTANT: Final = Path(__file__).resolve().parent / "constant_responses" / "model.py"
CONSTANT_CONFIG: Final = """\
backend: "python"
model_transaction_policy {decoupled: true}
instance_group [{count: 1, kind: KIND_MODEL}]
input [
  {name: "text_input", data_type: TYPE_STRING, dims: [1]},
  {name: "stream", data_type: TYPE_BOOL, dims: [1]},
  {name: "exclude_input_in_output", data_type: TYPE_BOOL, dims: [1]},
  {name: "sampling_parameters", data_type: TYPE_STRING, dims: [1]}
]
output [{name: "text_output", data_type: TYPE_STRING, dims: [-1]}]
"""


def write_model(folder: Path, model: Path, config: str) -> Path:
    """Write a repository with one model, `bench`; return the folder of its version."""
    version = folder / "repository" / "bench" / "1"
    version.mkdir(parents=True)
    shutil.copy(model, version / "model.py")
    (version.parent / "config.pbtxt").write_text(config, encoding="utf-8")
    return version


def words(folder: Path, environment: dict[str, str]) -> list[str]:
    """Return the server's words, without its ports.

    Args:
        folder: where `write_model` has written.
        environment: variables for the server, beside its own.
    """
    server = find_server(folder / "installation")
    variables = server.environment({"PATH": os.environ["PATH"]}) | environment
    return [
        "env",
        *(f"{name}={value}" for name, value in variables.items()),
        str(server.binary),
        f"--backend-directory={server.backends}",
        f"--model-repository={folder / 'repository'}",
    ]
