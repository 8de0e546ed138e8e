"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TINY = ROOT / ".cache" / "tiny"
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
