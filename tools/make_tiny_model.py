#!/usr/bin/env python3
"""Make the tiny models for the engine tests, unless they are there already.

The folder gets `llama/`, `lora/` and `t5/`, and the questions each of them answers:
`questions.json`, `chat_questions.json`, `long_questions.json`, `lora/expected.json` and
`t5/questions.json`.

A folder made by the present sources is left alone, which any Python from 3.10 on finds out at once.
Making it takes about a minute and the engines' environment, which has torch and transformers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tiny_model.errors import TinyModelError
from tiny_model.place import locked, replacing
from tiny_model.progress import Progress
from tiny_model.stamp import is_current

_ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    try:
        _make(options.output.resolve(), progress, force=options.force)
    except TinyModelError as error:
        progress.fail(str(error))
        return 1
    except KeyboardInterrupt:
        progress.fail("interrupted, nothing written")
        return 1
    return 0


def _make(output: Path, progress: Progress, *, force: bool) -> None:
    if is_current(output) and not force:
        progress.note(f"{output} is up to date")
        return
    with locked(output):
        if is_current(output) and not force:
            progress.note(f"{output} was made meanwhile")
            return
        with replacing(output) as work:
            _build(work, progress)
    progress.note(f"wrote {output}")


def _build(folder: Path, progress: Progress) -> None:
    progress.note("loading torch and transformers")
    # Threads that wait busily take half of what is computed beside them.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from tiny_model.build import build  # noqa: PLC0415 - takes seconds, often not needed
    except ModuleNotFoundError as error:
        environment = _ROOT / ".venv-engine" / "bin" / "python"
        raise TinyModelError(f"no module {error.name!r} here; run with {environment}") from error
    with _vllm_imported():
        build(folder, progress)


@contextlib.contextmanager
def _vllm_imported() -> Iterator[None]:
    """Import vLLM in the meantime: Python compiles what the first engines would all wait for."""
    command = [sys.executable, "-c", "import vllm.entrypoints.openai.api_server"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Make the tiny models for the engine tests.")
    default = _ROOT / ".cache" / "tiny"
    parser.add_argument("--output", type=Path, default=default, help="default: %(default)s")
    parser.add_argument("--force", action="store_true", help="make it even if it is up to date")
    return parser


if __name__ == "__main__":
    sys.exit(main())
