"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TINY = ROOT / ".cache" / "tiny"
CLIENTS_PYTHON = ROOT / ".venv-clients" / "bin" / "python"
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
