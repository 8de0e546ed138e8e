"""Measure lmi-backend against what a user would pick instead, in turn and in one run.

    python tools/bench.py                            all targets, three rounds
    python tools/bench.py --targets lmi vllm --concurrency 1 64 --rounds 1

Each round starts each target alone, measures it at each concurrency and stops it: idle engines
would take the cores of the one that is measured. perf_analyzer drives every server; the raw engine
drives itself. Results go to benchmarks/results/ as JSON, a table and pictures.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmark.measure import Settings, measure
from benchmark.perf_analyzer import find_perf_analyzer
from benchmark.report import write_report
from benchmark.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> int:
    """Run the benchmark; return the exit status."""
    arguments = _arguments(words)
    analyzer = find_perf_analyzer(ROOT / ".cache" / "perf_analyzer")
    settings = Settings(
        analyzer=analyzer,
        tokens=arguments.tokens,
        concurrencies=arguments.concurrency,
        seconds=arguments.seconds,
    )
    samples = []
    began = time.monotonic()
    for number in range(arguments.rounds):
        # The other way round every second time: a machine that slows down harms all alike.
        names = arguments.targets if number % 2 == 0 else arguments.targets[::-1]
        for name in names:
            _say(began, f"round {number + 1} of {arguments.rounds}: starting {name}")
            for sample in measure(TARGETS[name](ROOT), settings):
                samples.append(sample)
                _say(began, sample.line())
    for path in write_report(samples, ROOT / "benchmarks" / "results", arguments.name):
        _say(began, f"wrote {path.relative_to(ROOT)}")
    return 0


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=list(TARGETS), help="default: all"
    )
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of one measurement, about (%(default)s)"
    )
    parser.add_argument(
        "--name", default=time.strftime("%Y-%m-%d"), help="of the result files (the date)"
    )
    return parser.parse_args(words)


def _say(began: float, text: str) -> None:
    sys.stdout.write(f"[{time.monotonic() - began:5.0f} s] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
