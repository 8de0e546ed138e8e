"""Measure lmi-backend against what a user would pick instead, in turn and in one run.

    python tools/bench.py                            all targets, three rounds
    python tools/bench.py --targets lmi-backend "vLLM's server" --concurrency 1 64 --rounds 1
    python tools/bench.py --peer mine=openai:127.0.0.1:8000/llama --peer old=triton:host:8001/llama

Each round starts each target alone, measures it at each concurrency and stops it: idle engines
would take the cores of the one that is measured. perf_analyzer asks, but for HTTP streams and the
raw engine, which it cannot. Results go to benchmarks/results/: JSON with every sample, a table,
pictures, and a page of all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmark.measure import Settings, measure
from benchmark.perf_analyzer import find_perf_analyzer
from benchmark.report import write_report
from benchmark.servers import keep_pace
from benchmark.targets import DEFAULT, PROTOCOLS, TARGETS, Target, peer

ROOT = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> int:
    """Run the benchmark; return the exit status."""
    arguments = _arguments(words)
    if arguments.step_ms:
        keep_pace(arguments.step_ms / 1e3)
    settings = Settings(
        analyzer=find_perf_analyzer(ROOT / ".cache" / "perf_analyzer"),
        tokens=arguments.tokens,
        concurrencies=arguments.concurrency,
        seconds=arguments.seconds,
    )
    targets = {name: TARGETS[name] for name in arguments.targets} | dict(arguments.peer)
    samples = []
    began = time.monotonic()
    for number in range(arguments.rounds):
        # The other way round every second time: a machine that slows down harms all alike.
        for name in list(targets)[:: 1 if number % 2 == 0 else -1]:
            _say(began, f"round {number + 1} of {arguments.rounds}: starting {name}")
            for sample in measure(name, targets[name], settings):
                samples.append(sample)
                _say(began, sample.line())
    for path in write_report(samples, list(targets), arguments.output, arguments.name):
        _say(began, f"wrote {path}")
    return 0


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets", nargs="*", choices=TARGETS, default=list(DEFAULT), help="default: all but echo"
    )
    parser.add_argument(
        "--peer",
        type=_peer,
        action="append",
        default=[],
        metavar="NAME=PROTOCOL:HOST:PORT/MODEL",
        help="a server that runs already; triton: gRPC, the tensors of Triton's vLLM backend; "
        "openai: /v1/chat/completions",
    )
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 16, 32, 64])
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of one measurement, about (%(default)s)"
    )
    parser.add_argument(
        "--step-ms",
        type=float,
        default=0.0,
        help="each step of vLLM takes at least so long, as one on a GPU does (default: no wait)",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument(
        "--name", default=time.strftime("%Y-%m-%d"), help="of the result files (the date)"
    )
    return parser.parse_args(words)


def _peer(text: str) -> tuple[str, Target]:
    name, _, rest = text.partition("=")
    protocol, _, rest = rest.partition(":")
    address, _, model = rest.partition("/")
    if protocol not in PROTOCOLS or not (name and address and model):
        accepted = f"NAME=PROTOCOL:HOST:PORT/MODEL, where PROTOCOL is {' or '.join(PROTOCOLS)}"
        message = f"{text!r}; accepted: {accepted}"
        raise argparse.ArgumentTypeError(message)
    return name, peer(protocol, address, model)


def _say(began: float, text: str) -> None:
    sys.stdout.write(f"[{time.monotonic() - began:5.0f} s] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
