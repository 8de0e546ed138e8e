"""Serve the tiny model with vLLM changed in each way of tests/support, and write what came of it.

    python tools/mutations.py                   what tests/data/mutations.json has not yet
    python tools/mutations.py --again WORD      also what has this word in its name, or its outcome
    python tools/mutations.py --list            name the changes and what the record says of them

Several changes that touch different fast paths are in one copy of the vLLM of .venv-engine. Where
the outcome does not tell which did what, the copy is made again with half of them. What the source
tells, before anything is imported, needs no start. The record is written after each start.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from install import ROOT

sys.path.insert(0, str(ROOT))
from tests.support import mutated_engine, mutation_runs
from tests.support.compiling import NO_COMPILER
from tests.support.mutated_meanings import mutations
from tests.support.mutated_vllm import package_of
from tests.support.mutation_sources import found_by_source
from tests.support.mutations import Mutation
from tests.support.places import ENGINE_PYTHON, TINY

_ENVIRONMENT: Final = ENGINE_PYTHON.parent.parent.resolve()
_MOST: Final = 16
"""Changes in one copy."""
_TURN_SECONDS: Final = 200
_AWAY_SECONDS: Final = 2
_OF_PLAIN_CHATS: Final = {"plain_stream", "known_chats", "short_chats"}
"""Fast paths that no chat takes where the server parses tools."""
_OF_PARSED_CHATS: Final = "parsed_stream"
"""The one that chats take only there."""
_PROPERTIES: Final[dict[str, Any]] = {
    "option.rolling_batch": "vllm",
    "option.model_id": TINY / "llama",
    "option.dtype": "fp32",
    "option.max_model_len": 1024,
    "option.max_rolling_batch_size": 64,
    "option.enforce_eager": "true",
    "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
    "option.enable_lora": "true",
    "option.max_lora_rank": 8,
}


def main(arguments: list[str]) -> int:
    """Run what is to be run; the exit status is 1 if an outcome is wrong."""
    parser = argparse.ArgumentParser("mutations.py", description=str(__doc__).partition("\n")[0])
    again = "in a name, or an outcome; can be repeated"
    parser.add_argument("--again", action="append", default=[], metavar="WORD", help=again)
    parser.add_argument("--only", default="", metavar="WORD", help="run those with it in the name")
    parser.add_argument("--most", type=int, default=_MOST, help="changes in one copy")
    parser.add_argument("--sources", action="store_true", help="start nothing")
    parser.add_argument("--list", action="store_true", help="name them and do nothing")
    chosen = parser.parse_args(arguments)
    record, known = mutation_runs.Record(), mutations(package_of(_ENVIRONMENT))
    if chosen.list:
        for each in known:
            print(each.name, *record.found.get(each.name, ["not run"]), sep=" | ")
        return 0
    record.vllm = _version()
    wanted = [
        each
        for each in known
        if chosen.only in each.name
        and _is_wanted(each, record.found.get(each.name), chosen.again, chosen.sources)
    ]
    record.known = [each.name for each in known]
    print(f"{len(wanted)} of {len(known)} to do", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found = found_by_source(
            wanted, _ENVIRONMENT, Path(folder) / "source", with_fast_paths=chosen.sources
        )
        record.write(found)
        left = [each for each in wanted if each.name not in found]
        print(f"{len(found)} found by the source", flush=True)
        if not chosen.sources:
            _start_all(left, Path(folder), record, chosen.most)
    wrong = [name for name, (word, _) in record.found.items() if word == mutation_runs.WRONG]
    if wrong:
        print(f"wrong: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def _is_wanted(
    mutation: Mutation, outcome: list[str] | None, again: Sequence[str], has_no_start: bool
) -> bool:
    if outcome is None or any(word in mutation.name or word == outcome[0] for word in again):
        return True
    # What the source told of a fast path is better told by a start.
    by_source = outcome[0] in (mutation_runs.OFF, mutation_runs.FOUND)
    return by_source and bool(mutation.fast_paths) and not has_no_start


def _start_all(
    wanted: Sequence[Mutation], folder: Path, record: mutation_runs.Record, most: int
) -> None:
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1", NO_COMPILER: "1"}
    serve, turn = partial(mutated_engine.serve, _PROPERTIES), _Turn()
    turn.take()
    untouched = {}
    for has_parser in (True, False):
        as_it_is = serve(ENGINE_PYTHON, folder / "untouched", has_parser=has_parser)
        if as_it_is.refused or as_it_is.off:
            raise SystemExit(f"the untouched vLLM: {as_it_is.refused} {as_it_is.off}")
        untouched[has_parser] = as_it_is

    def start(group: Sequence[Mutation]) -> tuple[mutated_engine.Outcome, mutated_engine.Outcome]:
        python = mutated_engine.mutate(group, _ENVIRONMENT, folder / "changed")
        has_parser = _has_parser(group[0])
        turn.take()
        outcome = serve(python, folder / "work", has_parser=has_parser)
        print(
            f"{outcome.seconds:.0f} s: {'; '.join(each.name for each in group)}\n"
            f"  {outcome.refused[:600] or 'served'}; off: {outcome.off}",
            flush=True,
        )
        for name, difference in outcome.differences(untouched[has_parser]).items():
            if not outcome.refused:
                print(f"  {name}: {difference[:400]}", flush=True)
        if outcome.refused and len(group) == 1:
            print(outcome.output[-3000:], flush=True)
        return outcome, untouched[has_parser]

    for has_parser in (True, False):
        part = [each for each in wanted if _has_parser(each) == has_parser]
        mutation_runs.run(part, start, record, most)


def _has_parser(mutation: Mutation) -> bool:
    """Tell whether a change is served with a parser of tools."""
    touched = mutation.fast_paths
    return _OF_PARSED_CHATS in touched or not touched & _OF_PLAIN_CHATS


class _Turn:
    """Has no other process of this machine start an engine meanwhile, for some minutes at a time.

    Engines that share two cores are too slow for what waits for them.
    """

    def __init__(self) -> None:
        self._lock = Path(tempfile.gettempdir(), "engine.lock").open("a")  # noqa: SIM115
        self._ends = 0.0

    def take(self) -> None:
        """Wait for a turn, unless there is time left of this one."""
        if time.monotonic() > self._ends:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            time.sleep(_AWAY_SECONDS)  # so that who waits gets it
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._ends = time.monotonic() + _TURN_SECONDS


def _version() -> str:
    packages = [str(package_of(_ENVIRONMENT).parent)]
    return next(
        each.version for each in distributions(path=packages) if each.name.startswith("vllm")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
