"""Measure what a request, a response and a token cost around the echo engine; test predictions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scale import COSTS, Costs, Load, simulate

from benchmark.measure import Sample, Settings, measure
from benchmark.perf_analyzer import find_perf_analyzer
from benchmark.report import machine
from benchmark.targets import ROOT, echo

_SECONDS = 6.0


@dataclass(frozen=True)
class _Run:
    streams: int
    tokens: int
    properties: Mapping[str, Any]


_PACE = {"option.token_seconds": 0.02}
# Mixes that tell the three apart: many responses, many tokens in few, many requests.
_FIT = (
    _Run(32, 256, _PACE | {"option.stream_flush_ms": 0}),
    _Run(32, 256, _PACE | {"option.stream_flush_ms": 500}),
    _Run(32, 8, _PACE | {"option.stream_flush_ms": 500}),
    _Run(64, 32, _PACE | {"option.stream_flush_ms": 100}),
)
_CHECKS = (_Run(16, 128, _PACE), _Run(64, 128, _PACE), _Run(128, 128, _PACE))


def _measure(run: _Run) -> Sample:
    settings = Settings(
        find_perf_analyzer(Path(ROOT, ".cache", "perf_analyzer")),
        run.tokens,
        [run.streams],
        _SECONDS,
    )
    (sample,) = measure("echo", echo(run.properties), settings)
    sys.stdout.write(f"{sample.line()}\n")
    sys.stdout.flush()
    return sample


def fit() -> Costs:
    """Measure the costs here."""
    samples = [_measure(run) for run in _FIT]
    # Per token of each run: requests, responses, tokens.
    mix = np.array(
        [
            [1 / run.tokens, sample.responses_per_request / run.tokens, 1.0]
            for run, sample in zip(_FIT, samples, strict=True)
        ]
    )

    def costs(kind: str, columns: list[int]) -> list[float]:
        seen = np.array([sample.cpu_us_per_token[kind] for sample in samples])
        found, *_ = np.linalg.lstsq(mix[:, columns], seen, rcond=None)
        return [round(max(0.0, float(value)), 1) for value in found]

    worker = costs("worker front end", [0, 2])
    stub = costs("stub", [0, 1, 2])
    server = costs("tritonserver", [0, 1])
    measured = Costs(
        worker_token=worker[1],
        worker_request=worker[0],
        stub_response=stub[1],
        stub_token=stub[2],
        stub_request=stub[0],
        server_response=server[1],
        server_request=server[0],
    )
    return measured


def check(costs: Costs) -> list[list[str]]:
    """Predict three loads and measure them; return rows of streams, what, predicted, measured."""
    rows: list[list[str]] = []
    for run in _CHECKS:
        sample = _measure(run)
        rate = sample.tokens_per_second / run.streams
        cores = len(os.sched_getaffinity(0))
        load = Load(run.streams, rate, run.tokens, cores=cores)
        done = simulate(load, costs)
        seen = {k: v * sample.tokens_per_second / 1e6 for k, v in sample.cpu_us_per_token.items()}
        pairs = {
            "tokens a response": (
                done.tokens / done.responses,
                run.tokens / sample.responses_per_request,
            ),
            "stub, cores": (done.busy["stub"], seen["stub"]),
            "tritonserver, cores": (done.busy["tritonserver"], seen["tritonserver"]),
            "worker front end, cores": (done.busy["worker"], seen["worker front end"]),
        }
        rows += [[str(run.streams), w, f"{a:.2f}", f"{b:.2f}"] for w, (a, b) in pairs.items()]
    return rows


def fit_and_check() -> int:
    """Measure the costs here, test them, and write both to the file."""
    costs = fit()
    rows = check(costs)
    data = {"machine": machine(), "costs_us": asdict(costs), "checks": rows}
    COSTS.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    sys.stdout.writelines(f"{' | '.join(row)}\n" for row in rows)
    sys.stdout.write("wrote benchmarks/costs.json; `make docs` renews docs/scaling.md\n")
    return 0
