"""Run by the engine's interpreter: imports vLLM once, and runs scripts in forks of itself.

Reads JSON, a line a script: its words, and files for its standard input, output and error. Writes a
line when it has ended: its exit status.
"""

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

import vllm.engine.arg_utils  # noqa: F401  what takes the time


def run(words: list[str], *files: str) -> int:
    """Run a script as the interpreter would; return its exit status."""
    for number, (name, mode) in enumerate(zip(files, ("rb", "wb", "wb"), strict=True)):
        with Path(name).open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os._exit(run(*json.loads(line)))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
