"""The tables of docs/metrics.md: what each metric counts, and what the dashboard asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from page_parts import ROOT, table

from lmi_backend.frontend.operators.metrics import FAMILIES as FRONT_END_FAMILIES
from lmi_backend.serving.metrics import FAMILIES, VLLM_NAMES

_CHOSEN: Final = 'namespace=~"$namespace",pod=~"$pod",model=~"$model"'
"""What limits each series of the dashboard to its variables."""


def metrics() -> Iterator[str]:
    rows = ((f"`{name}`", kind.lower(), text) for name, (kind, text) in FAMILIES.items())
    yield from table(("name", "kind", "meaning"), rows)


def vllm_metrics() -> Iterator[str]:
    rows = (
        (f"`{name}`", ", ".join(f"`{each}`" for each in theirs))
        for name, theirs in VLLM_NAMES.items()
    )
    yield from table(("name here", "name there"), rows)


def front_end_metrics() -> Iterator[str]:
    rows = ((f"`{name}`", kind, text) for name, (kind, _, text) in FRONT_END_FAMILIES.items())
    yield from table(("name", "kind", "meaning"), rows)


def questions() -> Iterator[str]:
    """Yield the lines of the table of what to ask: the last query of each panel."""
    board = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    rows = ((each["title"], f"`{_plain(each['targets'][-1]['expr'])}`") for each in board["panels"])
    yield from table(("what", "PromQL"), rows)


def _plain(query: str) -> str:
    """Return a query for people, who choose no variables."""
    query = query.replace(f"{{{_CHOSEN}}}", "").replace(f",{_CHOSEN}", "")
    return query.replace("namespace, model", "model").replace("$__rate_interval", "5m")
