"""What was fitted to logs, fitted again without each of them, beside the one left out."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Final

from planner_logs import Log, compared, number

from lmi_backend.sizing import step as steps
from lmi_backend.units import GIB

_FACTORS: Final = range(17)


def left_out(found: list[Log]) -> Iterator[tuple[Log, int, float]]:
    """Yield rows with gated delta nets, the factor of all others, and the error it gives here.

    The factor says how many times the width of its values a token takes in such a layer.
    """
    nets = [each for each in compared(found) if each.facts.states.delta and each.step.tokens > 2048]
    for each in nets:
        others = [other for other in nets if other is not each]
        best = min(_FACTORS, key=lambda factor: sum(abs(_gap(o, factor)) for o in others))
        space = each.estimate.kv_cache / GIB
        yield each, best, 100 * _gap(each, best) / (space - _gap(each, steps.DELTA_WIDTHS))


def _gap(log: Log, factor: int) -> float:
    """Return the GiB by which the cache is predicted too large with a factor."""
    shape = log.facts.states.delta
    if shape is None:
        return 0.0
    changed = (factor - steps.DELTA_WIDTHS) * shape.value_heads * shape.value_dim * 2
    logged = number(log.row["model_loading_gib_per_gpu"]) * GIB or log.estimate.weights
    weights = log.estimate.weights - logged
    space = log.estimate.kv_cache + weights - changed * log.step.tokens
    return space / GIB - number(log.row["available_kv_gib_per_gpu"])


def kernels_left_out(found: list[Log]) -> Iterator[tuple[str, Log, float]]:
    """Yield what was fitted, a row it shows in, and the error with the mean of the other rows.

    A row says a constant by the GiB that its cache lacks, with the logged weights.
    """
    for name, has in _KERNELS.items():
        rows = [each for each in compared(found) if _has_usual_graphs(each) and has(each)]
        rows = [each for each in rows if each.space and each.tokens]
        gaps = [_gap(each, steps.DELTA_WIDTHS) for each in rows]
        for at, (each, gap) in enumerate(zip(rows, gaps, strict=True)):
            others = gaps[:at] + gaps[at + 1 :]
            left = gap - statistics.mean(others) if others else gap
            yield name, each, 100 * left / each.space


def _has_usual_graphs(log: Log) -> bool:
    """Tell whether vLLM's estimate of the graphs, which is multiplied, says anything of kernels."""
    return number(log.row["cudagraph_gib"]) >= 0 and log.gpu != "B200"


def _has_flashinfer(log: Log) -> bool:
    step, facts = log.step, log.facts
    is_first = step.release >= (0, 22) and not steps.has_second_runner(step, facts)
    return bool(facts.states.layers) and is_first and step.samples_with_flashinfer


_KERNELS: Final[dict[str, Callable[[Log], bool]]] = {
    "FlashInfer's kernels with states": _has_flashinfer,
    "kernels of NVFP4": lambda log: log.facts.has_4_bit_floats and log.estimate.cuda_graphs > 0,
}
