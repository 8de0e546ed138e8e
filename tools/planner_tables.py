"""Tables of the logs of 2026: errors by row, by kind of GPU and by release.

.venv/bin/python tools/planner_tables.py
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

from planner_fits import kernels_left_out, left_out
from planner_logs import Log, compared, is_compared, logs

from lmi_backend.units import GIB


def by(found: list[Log], name: str) -> dict[str, list[float]]:
    """Return the errors of compared rows by kind of GPU ("gpu") or by release ("vllm")."""
    errors: dict[str, list[float]] = {}
    for each in compared(found):
        key = each.gpu if name == "gpu" else f"0.{each.step.release[1]}"
        errors.setdefault(key, []).append(each.error)
    return dict(sorted(errors.items()))


def table(found: list[Log]) -> Iterator[str]:
    """Yield the lines of a table of all rows."""
    yield (
        "| model | GPU | vLLM | weights P / M | KV cache P / M | tokens P / M | error | in range |"
    )
    yield f"|{' --- |' * 8}"
    for each in sorted(found, key=lambda log: (log.gpu, log.row["vllm"], log.row["model"])):
        row, made = each.row, each.estimate
        tokens = f"{made.logged_tokens:,} / {each.tokens:,}" if each.tokens else "-"
        is_shown = is_compared(each)
        error = f"{each.error:+.1f} %" if is_shown else each.unknown or "-"
        cells = (
            row["model"],
            row["gpu"] or "-",
            row["vllm"],
            f"{made.weights / GIB:.2f} / {row['model_loading_gib_per_gpu'] or '-'}",
            f"{made.kv_cache / GIB:.2f} / {row['available_kv_gib_per_gpu'] or '-'}",
            tokens,
            error,
            ("yes" if each.has_range else "no") if is_shown else "-",
        )
        yield f"| {' | '.join(cells)} |"


def summary(found: list[Log]) -> Iterator[str]:
    """Yield sentences about the errors."""
    errors = [each.error for each in compared(found)]
    median = statistics.median(abs(each) for each in errors)
    most = sum(each > 0 for each in errors)
    yield (
        f"{len(errors)} of {len(found)} rows have known settings: median error "
        f"{median:.1f} %, {most} promise too much and {len(errors) - most} too little."
    )
    blind = [each.blind for each in found if each.blind is not None]
    least = statistics.median(abs(each) for each in blind)
    now = statistics.median(abs(each.error) for each in found if each.blind is not None)
    yield (
        f"The {len(blind)} newest of them were planned before anything was changed for them: then "
        f"the median error was {least:.1f} %, {sum(each > 0 for each in blind)} promised too much "
        f"and {sum(each < 0 for each in blind)} too little; now it is {now:.1f} %."
    )
    yield "\n| kind of GPU or release | median error | rows |"
    yield f"|{' --- |' * 3}"
    for name in ("gpu", "vllm"):
        for key, each in by(found, name).items():
            yield f"| {key} | {statistics.median(map(abs, each)):.1f} % | {len(each)} |"
    yield "\nFitted without a row, and with its logged weights, its GiB of cache have this error:\n"
    yield "| what is fitted | row | error |"
    yield f"|{' --- |' * 3}"
    for log, best, error in left_out(found):
        yield f"| widths of a gated delta net, {best} | {_name(log)} | {error:+.1f} % |"
    for name, log, error in kernels_left_out(found):
        yield f"| {name} | {_name(log)} | {error:+.1f} % |"


def _name(log: Log) -> str:
    return f"{log.row['model']}, {log.row['gpu']}, {log.row['vllm']}"


def main() -> int:
    """Write the table and the summary."""
    found = logs()
    sys.stdout.writelines(f"{line}\n" for line in (*table(found), "", *summary(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
