"""Measure lmi-backend against what a user would pick instead, in turn and in one run.

    python tools/bench.py                            all targets at a GPU's pace, about 20 minutes
    python tools/bench.py --quick                    chats and vLLM's two servers alone, about 6
    python tools/bench.py --long --tokens 512        the same with up to 1,024 chats, about 20
    python tools/bench.py --step-ms 0 --rounds 3     the engine wants its server's cores
    python tools/bench.py --targets "lmi-backend, chat" "vLLM's server" --concurrency 1 64
    python tools/bench.py --vllm-backend ../vllm_backend    Triton's vLLM backend beside them
    python tools/bench.py --peer mine=openai:127.0.0.1:8000/llama --peer old=triton:host:8001/llama

Each round starts each target alone, measures it at each concurrency and stops it: idle engines
would take the cores of the one that is measured. Each step of vLLM takes at least 25 ms, as one
does on a GPU, in every target alike. One client of ours asks all HTTP targets, perf_analyzer asks
over gRPC. Results go to benchmarks/results/: JSON with every sample, a table, and a picture.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmark.catalogue import DEFAULT, QUICK, TARGETS, VLLM_BACKEND
from benchmark.measure import Sample, Settings, measure
from benchmark.perf_analyzer import find_perf_analyzer
from benchmark.report import write_report
from benchmark.servers import UnavailableError, keep_pace
from benchmark.targets import PROTOCOLS, Target, peer
from benchmark.triton_vllm import CHECKOUT, REPOSITORY, checkout, note

ROOT = Path(__file__).resolve().parent.parent
_AT_ONCE = [1, 64, 256]
_QUICK_AT_ONCE = [1, 256]
_MANY = [1024]


def main(words: list[str]) -> int:
    arguments = _arguments(words)
    # As Ctrl-C does: a server left behind would take the cores of what is measured next.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if arguments.step_ms:
        keep_pace(arguments.step_ms / 1e3)
    settings = Settings(
        analyzer=find_perf_analyzer(ROOT / ".cache" / "perf_analyzer"),
        tokens=arguments.tokens,
        concurrencies=arguments.concurrency,
        seconds=arguments.seconds,
    )
    targets = _targets(arguments)
    cycles = arguments.rounds * len(targets) * len(arguments.concurrency)
    samples: list[Sample] = []
    skipped: dict[str, str] = {}
    began = time.monotonic()
    try:
        for name in _in_turn(targets, arguments.rounds, began):
            for sample in _measure(name, targets[name], settings, skipped):
                samples.append(sample)
                _say(began, f"{len(samples)} of {cycles}: {sample.line()}")
    finally:
        # Minutes of measurements are not lost with one that fails.
        if samples:
            _write(samples, targets, arguments, [*skipped.values()], began)
    return 0


def _measure(
    name: str, target: Target, settings: Settings, skipped: dict[str, str]
) -> Iterator[Sample]:
    """Yield the samples of a target; note why there are none if it cannot be had."""
    try:
        yield from measure(name, target, settings)
    except UnavailableError as error:
        skipped[name] = f"{name} was skipped: {error}"
        sys.stdout.write(f"{skipped[name]}\n")


def _write(
    samples: list[Sample],
    targets: dict[str, Target],
    arguments: argparse.Namespace,
    skipped: list[str],
    began: float,
) -> None:
    notes = [f"Answers have {arguments.tokens} tokens", *skipped]
    notes += [note()] if VLLM_BACKEND in targets else []
    there = [name for name in targets if any(sample.target == name for sample in samples)]
    for path in write_report(samples, there, arguments.output, arguments.name, notes):
        _say(began, f"wrote {path}")


def _in_turn(targets: dict[str, Target], rounds: int, began: float) -> Iterator[str]:
    for number in range(rounds):
        # The other way round every second time: a machine that slows down harms all alike.
        for name in list(targets)[:: 1 if number % 2 == 0 else -1]:
            _say(began, f"round {number + 1} of {rounds}: starting {name}")
            yield name


def _targets(arguments: argparse.Namespace) -> dict[str, Target]:
    names = arguments.targets or list(QUICK if arguments.quick or arguments.long else DEFAULT)
    if arguments.vllm_backend:
        os.environ[CHECKOUT] = str(arguments.vllm_backend.resolve())
        names = list(dict.fromkeys((*names, VLLM_BACKEND)))
    if VLLM_BACKEND in names:
        checkout()
    return {name: TARGETS[name] for name in names} | dict(arguments.peer)


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets",
        nargs="+",
        choices=TARGETS,
        metavar="TARGET",
        help="default: all but echo, embeddings and chats that are not plain. Known: "
        + "; ".join(TARGETS),
    )
    parser.add_argument(
        "--quick", action="store_true", help="few targets, 1 and 256 requests at once"
    )
    parser.add_argument(
        "--long", action="store_true", help="the same targets, up to 1,024 requests at once"
    )
    _add_peers(parser)
    parser.add_argument(
        "--concurrency",
        nargs="+",
        type=int,
        help="default: 1 64 256, quick: 1 256, long: 1 64 256 1024",
    )
    parser.add_argument("--rounds", type=int, default=1, help="default %(default)s")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of one measurement, about (%(default)s)"
    )
    parser.add_argument(
        "--step-ms",
        type=float,
        default=25.0,
        help="each step of vLLM takes at least so long, as one on a GPU does (%(default)s); "
        "0: no wait",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument(
        "--name", default=time.strftime("%Y-%m-%d"), help="of the result files (the date)"
    )
    arguments = parser.parse_args(words)
    usual = _QUICK_AT_ONCE if arguments.quick else _AT_ONCE
    arguments.concurrency = arguments.concurrency or usual + _MANY * arguments.long
    return arguments


def _add_peers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vllm-backend",
        type=Path,
        metavar="FOLDER",
        help=f"a checkout of {REPOSITORY}; measured beside the others",
    )
    parser.add_argument(
        "--peer",
        type=peer_of,
        action="append",
        default=[],
        metavar="NAME=PROTOCOL:HOST:PORT/MODEL",
        help="a server that runs already; triton: gRPC, the tensors of Triton's vLLM backend; "
        "openai: /v1/chat/completions",
    )


def peer_of(text: str) -> tuple[str, Target]:
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
