"""What an operator looks at: the page of metrics, and a Grafana dashboard of the same questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lmi_backend.frontend.metrics import FAMILIES as FRONT_END_FAMILIES
from lmi_backend.serving.metrics import FAMILIES, VLLM_NAMES

_HEAD = """# Metrics

On Triton's `/metrics`, each labelled with `model`, some also with `worker`; `lmi_requests_total`
with `outcome`: `stop`, `length`, `error`, or an error's code. A histogram has `_bucket`, `_sum` and
`_count`, as `histogram_quantile` wants them; Triton's page calls each of them a counter, and has
the buckets in no order.
"""
_VLLM = """
What vLLM's own server and Triton's vLLM backend have too is there under their names as well, at
most a second old, with the labels `model`, `version`, `model_name` and, of a worker, `engine`:
boards that were made for these show it unchanged. `REPORT_CUSTOM_METRICS: "false"` among the
parameters of config.pbtxt leaves them out; unlike there they need no "true". Of an answer that is
not streamed the first token's time is known on vLLM; where it is not (OpenAI's bodies, several
answers to a request, other engines) it is one response, whose time is that of its first token, and
has none from token to token. There are no `vllm:request_queue_time_seconds`,
`vllm:request_prefill_time_seconds`, `vllm:request_decode_time_seconds` and
`vllm:iteration_tokens_total`, which only the engine could tell.

| name here | name there |
| --- | --- |"""
_FLEETS = """
The front end's `/metrics` shows these too, and what gateways' endpoint pickers route by, under the
names of vLLM's own server, one series of each over all models and workers:
`vllm:num_requests_running`, `vllm:num_requests_waiting`, `vllm:kv_cache_usage_perc` (of the fullest
worker), and of vLLM's models `vllm:cache_config_info` (`block_size`, `num_gpu_blocks`; not where
models differ in the former) and, with LoRA, `vllm:lora_requests_info` (`max_lora`,
`running_lora_adapters`, `waiting_lora_adapters`). The first three, which Triton's port has of each
worker, have the label `model_name` where there is one model.

What it counts itself has the labels `model` and `process`: each of `--frontend-processes` counts
its own, and any of them answers.

| name | kind | meaning |
| --- | --- | --- |"""
_QUESTIONS_HEAD = """
## What to ask

[deploy/](../deploy/README.md) has these as a Grafana dashboard, and Prometheus alerts.
"""
_PLACES = {"width": 12, "height": 8}


@dataclass(frozen=True)
class Question:
    """A panel: PromQL by legend, and the unit as Grafana calls it."""

    title: str
    unit: str
    queries: dict[str, str]


def _hour(counter: str) -> str:
    """Return what all processes of the front end counted in an hour."""
    return f"sum by (model) (increase({counter}[1h]))"


def _quantiles(histogram: str) -> dict[str, str]:
    return {
        f"{{{{model}}}} p{share}": f"histogram_quantile({share / 100}, sum by (model, le) "
        f"(rate({histogram}_bucket[$__rate_interval])))"
        for share in (50, 95, 99)
    }


def _rate(metric: str, by: str = "model") -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _ratio(part: str, whole: str) -> dict[str, str]:
    return {"{{model}}": f"{_rate(part)} / {_rate(whole)}"}


QUESTIONS = (
    Question(
        "Requests ended, by outcome",
        "reqps",
        {"{{model}} {{outcome}}": _rate("lmi_requests_total", "model, outcome")},
    ),
    Question("Requests open", "short", {"{{model}}": "lmi_requests_open"}),
    Question("Time to first token", "s", _quantiles("lmi_time_to_first_token_seconds")),
    Question("Time from token to token", "s", _quantiles("lmi_inter_token_seconds")),
    Question("Time of a whole request", "s", _quantiles("lmi_request_seconds")),
    Question(
        "Tokens",
        "short",
        {
            "{{model}} generated": _rate("lmi_generation_tokens_total"),
            "{{model}} prompts": _rate("lmi_prompt_tokens_total"),
        },
    ),
    Question("Prompt tokens of a request", "short", _quantiles("lmi_request_prompt_tokens")),
    Question("Tokens of an answer", "short", _quantiles("lmi_request_generation_tokens")),
    Question("Answers a request asks for", "short", _quantiles("lmi_request_answers")),
    Question(
        "Requests in the engine",
        "short",
        {
            "{{model}}/{{worker}} running": "lmi_engine_requests_running",
            "{{model}}/{{worker}} waiting": "lmi_engine_requests_waiting",
        },
    ),
    Question(
        "KV cache in use",
        "percentunit",
        {"{{model}}/{{worker}}": "lmi_engine_kv_cache_usage_ratio"},
    ),
    Question(
        "Tokens a response carries",
        "short",
        _ratio("lmi_generation_tokens_total", "lmi_responses_total"),
    ),
    Question(
        "Prompt tokens found in the prefix cache",
        "percentunit",
        _ratio("lmi_engine_prompt_tokens_cached_total", "lmi_engine_prompt_tokens_looked_up_total"),
    ),
    Question(
        "Drafted tokens that are kept",
        "percentunit",
        _ratio("lmi_engine_tokens_accepted_total", "lmi_engine_tokens_drafted_total"),
    ),
    Question(
        "Workers: ready, and deaths in the last hour",
        "short",
        {
            "{{model}}/{{worker}} ready": "lmi_worker_ready",
            "{{model}}/{{worker}} wanted": "lmi_worker_wanted",
            "{{model}}/{{worker}} deaths": "increase(lmi_worker_deaths_total[1h])",
        },
    ),
    Question(
        "Answers asked of each worker",
        "reqps",
        {"{{model}}/{{worker}}": _rate("lmi_worker_requests_total", "model, worker")},
    ),
    Question(
        "Requests whose worker died or was not ready, in the last hour",
        "short",
        {
            "{{model}}: went on elsewhere": "increase(lmi_migrations_total[1h])",
            "{{model}}: waited for a worker": "increase(lmi_requests_held_total[1h])",
            "{{model}}: no worker in time": "increase(lmi_requests_given_up_total[1h])",
        },
    ),
    Question(
        "Requests whose server died or was away, in the last hour, and those that wait",
        "short",
        {
            "{{model}}: went on when it was back": _hour("lmi_front_end_migrations_total"),
            "{{model}}: waited to begin": _hour("lmi_front_end_requests_held_total"),
            "{{model}}: not back in time": _hour("lmi_front_end_requests_given_up_total"),
            "{{model}}: wait now": "sum by (model) (lmi_front_end_requests_waiting)",
        },
    ),
)
"""In the order of the dashboard."""


def _each_and_all(metric: str, whole: str = "sum") -> dict[str, str]:
    """Return a pod's gauge of the front end's port, and what it is of all."""
    return {"{{instance}}": metric, f"{whole} of all": f"{whole}({metric})"}


_OF_A_POD = "sum by (instance) (rate(lmi_generation_tokens_total[$__rate_interval]))"
_P95 = "histogram_quantile(0.95, sum by ({}) (rate({}_bucket[$__rate_interval])))"
_FIRST = "lmi_time_to_first_token_seconds"
FLEET_QUESTIONS = (
    Question("Requests that run", "short", _each_and_all("vllm:num_requests_running")),
    Question("Requests that wait", "short", _each_and_all("vllm:num_requests_waiting")),
    Question("KV cache in use", "percentunit", _each_and_all("vllm:kv_cache_usage_perc", "avg")),
    Question(
        "Tokens generated", "short", {"{{instance}}": _OF_A_POD, "sum of all": f"sum({_OF_A_POD})"}
    ),
    Question(
        "First token, 95 of 100 requests",
        "s",
        {
            "{{instance}}": _P95.format("instance, le", _FIRST),
            "all": _P95.format("le", _FIRST),
        },
    ),
    Question(
        "Requests that did not end well",
        "reqps",
        {
            "{{instance}} {{outcome}}": "sum by (instance, outcome) "
            '(rate(lmi_requests_total{outcome!~"stop|length"}[$__rate_interval]))'
        },
    ),
    Question("Pods that answer", "short", {"pods": "count(vllm:num_requests_running)"}),
    Question(
        "The busiest pod, as a multiple of the mean",
        "short",
        {"running": "max(vllm:num_requests_running) / avg(vllm:num_requests_running)"},
    ),
)
"""The same of the dashboard of a fleet: a line a pod, and one of all."""


def metrics_page() -> Iterator[str]:
    """Yield the lines of docs/metrics.md."""
    yield _HEAD
    yield "| name | kind | meaning |"
    yield "| --- | --- | --- |"
    for name, (kind, text) in FAMILIES.items():
        yield f"| `{name}` | {kind.lower()} | {text} |"
    yield _VLLM
    for name, theirs in VLLM_NAMES.items():
        yield f"| `{name}` | {', '.join(f'`{each}`' for each in theirs)} |"
    yield _FLEETS
    for name, (kind, _, text) in FRONT_END_FAMILIES.items():
        yield f"| `{name}` | {kind} | {text} |"
    yield _QUESTIONS_HEAD
    yield "| what | PromQL |"
    yield "| --- | --- |"
    for question in QUESTIONS:
        query = list(question.queries.values())[-1].replace("$__rate_interval", "5m")
        yield f"| {question.title} | `{query}` |"


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
        "templating": {"list": [_source()]},
        "panels": [_panel(number, question) for number, question in enumerate(questions)],
    }
    yield json.dumps(board, indent=2)


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _panel(number: int, question: Question) -> dict[str, Any]:
    width, height = _PLACES["width"], _PLACES["height"]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": question.title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {
            "x": number % 2 * width,
            "y": number // 2 * height,
            "w": width,
            "h": height,
        },
        "fieldConfig": {"defaults": {"unit": question.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(question.queries.items())
        ],
    }
