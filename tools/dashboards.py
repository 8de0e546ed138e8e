"""The Grafana dashboards of deploy/, which ask the questions of the page of metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from metrics_page import FLEET_QUESTIONS, QUESTIONS, Question

from lmi_backend.frontend.operators.metrics import FAMILIES as FRONT_END_FAMILIES
from lmi_backend.serving.metrics import FAMILIES

_WIDTH, _HEIGHT = 12, 8
_VARIABLES = ("namespace", "pod", "model")
_LABELLED = "lmi_requests_open"
"""A metric of every model."""
_SERIES = re.compile(r"(?P<name>\b(?:lmi_|vllm:)\w+)(?:\{(?P<labels>[^}]*)\})?")


def dashboard() -> Iterator[str]:
    """Yield deploy/grafana-dashboard.json."""
    yield from _board("lmi-backend", QUESTIONS)


def fleet_dashboard() -> Iterator[str]:
    """Yield deploy/grafana-fleet.json."""
    yield from _board("lmi-backend-fleet", FLEET_QUESTIONS)


def _board(name: str, questions: tuple[Question, ...]) -> Iterator[str]:
    board = {
        "title": name,
        "uid": name,
        "tags": ["triton", "llm"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), *map(_variable, _VARIABLES)]},
        "panels": [_panel(number, question) for number, question in enumerate(questions)],
    }
    yield json.dumps(board, indent=2)


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(label: str) -> dict[str, Any]:
    """Return the choice of one label's values; what has no such label is among all."""
    return {
        "name": label,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f"label_values({_LABELLED}, {label})",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _chosen(query: str) -> str:
    """Return a query with each series limited to what the variables choose.

    A model of the same name in two namespaces is two models.
    """
    wanted = ",".join(f'{label}=~"${label}"' for label in _VARIABLES)

    def limited(series: re.Match[str]) -> str:
        own = f"{series['labels']}," if series["labels"] else ""
        return f"{series['name']}{{{own}{wanted}}}"

    return _SERIES.sub(limited, query).replace("by (model", "by (namespace, model")


def _description(question: Question) -> str:
    """Return what the metrics of a panel count."""
    asked = " ".join(question.queries.values())
    families = {**FAMILIES, **FRONT_END_FAMILIES}
    meanings = {name: str(family[-1]) for name, family in families.items()}
    names = [name for name in meanings if re.search(rf"\b{name}(_bucket|_sum|_count)?\b", asked)]
    return "\n\n".join(f"{meanings[name]}." for name in names) or f"{question.title}."


def _panel(number: int, question: Question) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": question.title,
        "description": _description(question),
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": question.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "expr": _chosen(query),
                "legendFormat": legend.replace("{{model}}", "{{namespace}} {{model}}"),
            }
            for place, (legend, query) in enumerate(question.queries.items())
        ],
    }
