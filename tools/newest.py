"""Run the short set on vLLM's newest release, if the record has none as new.

    python tools/newest.py

CI runs it. A release may be there before its CPU build: its Python files are laid over the
libraries of .venv-engine (tools/overlay.py). A registry that is away, and a release whose Python
does not run on these libraries, are said and fail nothing; a failed test does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from compat import read_fast_paths, read_report, run_tests
from compat_lines import ROOT, SHORT, Line
from overlay import FOLDER, OverlayError, newest_release, overlay

from lmi_backend.options.releases import newest_run, numbers

_MODEL: Final = ROOT / "examples" / "tiny" / "llama"
_BY_ITSELF: Final = """
import sys, vllm
if __name__ == "__main__":
    llm = vllm.LLM(sys.argv[1], max_model_len=512, enforce_eager=True)
    assert llm.generate(["The capital of France is"])[0].outputs[0].text
"""
_SECONDS: Final = 300
_LINE: Final = "#" * 78


def main() -> int:
    """Run it if there is anything to run; return the exit status."""
    try:
        newest, run = newest_release(), newest_run("vllm")
        if numbers(newest) <= numbers(run):
            print(f"newest: vLLM {newest} is the registry's newest, and {run} has run")
            return 0
        _say(f"vLLM {newest} is on the registry, and {run} is the newest that was run")
        python = overlay(newest)
    except OverlayError as error:
        _say(f"no newest vLLM was tried: {error}")
        return 0
    return _try(newest, python)


def _try(newest: str, python: Path) -> int:
    line = Line("newest", "vllm", tests=SHORT, is_overlay=True)
    report = run_tests(line, python)
    failed = [name for each in read_report(report).values() for name in each["failed"]]
    if not failed:
        off = ", ".join(name for name, reason in read_fast_paths(report).items() if reason)
        held = f"without {off}" if off else "with all fast paths"
        _say(f"vLLM {newest} passes the short set {held}; record it: `make compat`, `make docs`")
        return 0
    if not runs_by_itself(python):
        _say(f"vLLM {newest} does not run on the libraries of the newest CPU build by itself")
        return 0
    _say(f"vLLM {newest} fails: {', '.join(failed)}; see {FOLDER / 'newest.log'}")
    return 1


def runs_by_itself(python: Path) -> bool:
    """Tell whether vLLM answers without us: its engine's libraries are of another release."""
    script = FOLDER / "by_itself.py"
    script.write_text(_BY_ITSELF, encoding="utf-8")
    words = (str(python), str(script), str(_MODEL))
    try:
        done = subprocess.run(words, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _say(text: str) -> None:
    """Say it so that nobody who reads CI's log can miss it."""
    print(f"{_LINE}\n# newest: {text}\n{_LINE}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
