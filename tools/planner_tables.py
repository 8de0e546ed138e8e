"""The tables of the logs of 2026: errors by row, by kind of GPU and by release."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from page_parts import table
from planner_fits import kernels_left_out, left_out
from planner_logs import Log, compared, is_compared, logs

from lmi_backend.units import GIB


def planner_logs() -> Iterator[str]:
    """Yield the lines of a table of all rows."""
    heads = ("model", "GPU", "vLLM", "weights P / M", "KV cache P / M", "tokens P / M", "error")
    found = sorted(logs(), key=lambda log: (log.gpu, log.row["vllm"], log.row["model"]))
    yield from table((*heads, "in range"), map(_cells, found))


def _cells(each: Log) -> Iterator[str]:
    row, made = each.row, each.estimate
    is_shown = is_compared(each)
    yield from (row["model"], row["gpu"] or "-", row["vllm"])
    yield f"{made.weights / GIB:.2f} / {row['model_loading_gib_per_gpu'] or '-'}"
    yield f"{made.kv_cache / GIB:.2f} / {row['available_kv_gib_per_gpu'] or '-'}"
    yield f"{made.logged_tokens:,} / {each.tokens:,}" if each.tokens else "-"
    yield f"{each.error:+.1f} %" if is_shown else each.unknown or "-"
    yield ("yes" if each.has_range else "no") if is_shown else "-"


def planner_errors() -> Iterator[str]:
    """Yield the lines of a table of errors: of all rows, of the newest, by GPU and by release."""
    found = logs()
    newest = [each for each in found if each.blind is not None]
    errors = {
        "all with known settings": [each.error for each in compared(found)],
        "the newest, blind": [each.blind for each in newest if each.blind is not None],
        "the newest, now": [each.error for each in newest],
    }
    by_gpu: dict[str, list[float]] = {}
    by_release: dict[str, list[float]] = {}
    for each in compared(found):
        by_gpu.setdefault(each.gpu, []).append(each.error)
        by_release.setdefault(f"0.{each.step.release[1]}", []).append(each.error)
    errors |= dict(sorted(by_gpu.items())) | dict(sorted(by_release.items()))
    rows = (
        (
            name,
            str(len(each)),
            f"{statistics.median(map(abs, each)):.1f} %",
            f"{sum(error > 0 for error in each)}",
            f"{sum(error < 0 for error in each)}",
        )
        for name, each in errors.items()
    )
    heads = ("rows, kind of GPU or release", "rows", "median error", "too much", "too little")
    yield from table(heads, rows)


def planner_fits() -> Iterator[str]:
    """Yield the lines of a table of what was fitted, without each row."""
    found = logs()
    rows = [
        (f"widths of a gated delta net, {best}", _name(log), f"{error:+.1f} %")
        for log, best, error in left_out(found)
    ]
    rows += [(name, _name(log), f"{error:+.1f} %") for name, log, error in kernels_left_out(found)]
    yield from table(("what is fitted", "row", "error"), rows)


def _name(log: Log) -> str:
    return f"{log.row['model']}, {log.row['gpu']}, {log.row['vllm']}"
