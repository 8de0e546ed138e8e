"""What an operator looks at: tables of metrics, and what to ask, in PromQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from page_parts import table

from lmi_backend.frontend.operators.metrics import FAMILIES as FRONT_END_FAMILIES
from lmi_backend.serving.metrics import FAMILIES, VLLM_NAMES


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


_BLOCKS = {"all": "lmi_engine_kv_cache_blocks", "in use": "lmi_engine_kv_cache_blocks_used"}
QUESTIONS = (
    Question(
        "Finished requests, by outcome",
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
    Question("Answers of a request", "short", _quantiles("lmi_request_answers")),
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
        "Tokens that the KV cache has room for, and of blocks in use",
        "short",
        {
            f"{{{{model}}}}/{{{{worker}}}} {legend}": f"{blocks} * lmi_engine_kv_cache_block_tokens"
            for legend, blocks in _BLOCKS.items()
        },
    ),
    Question(
        "Fast paths of the engine that are off",
        "short",
        {"{{model}}/{{worker}} {{name}}": "1 - lmi_engine_fast_path > 0"},
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
            "{{model}}/{{worker}} spare": "lmi_worker_spare",
            "{{model}}/{{worker}} adopted": "lmi_worker_adopted",
            "{{model}}/{{worker}} deaths": "increase(lmi_worker_deaths_total[1h])",
        },
    ),
    Question(
        "Answers of each worker",
        "reqps",
        {"{{model}}/{{worker}}": _rate("lmi_worker_requests_total", "model, worker")},
    ),
    Question(
        "Requests whose worker died or was not ready, in the last hour",
        "short",
        {
            "{{model}}: resumed elsewhere": "increase(lmi_migrations_total[1h])",
            "{{model}}: waited for a worker": "increase(lmi_requests_held_total[1h])",
            "{{model}}: no worker in time": "increase(lmi_requests_given_up_total[1h])",
        },
    ),
    Question(
        "Requests without a server, in the last hour, and those that wait",
        "short",
        {
            "{{model}}: resumed when it was back": _hour("lmi_front_end_migrations_total"),
            "{{model}}: waited to begin": _hour("lmi_front_end_requests_held_total"),
            "{{model}}: not back in time": _hour("lmi_front_end_requests_given_up_total"),
            "{{model}}: wait now": "sum by (model) (lmi_front_end_requests_waiting)",
        },
    ),
    Question(
        "Streams whose clients reconnect, in the last hour, and those that are kept",
        "short",
        {
            "{{model}}: reconnected": _hour("lmi_front_end_reconnections_total"),
            "{{model}}: of these, to another front end": _hour(
                "lmi_front_end_answers_taken_over_total"
            ),
            "{{model}}: did not reconnect": _hour("lmi_front_end_answers_lapsed_total"),
            "{{model}}: kept now": "sum by (model) (lmi_front_end_answers_kept)",
        },
    ),
    Question(
        "Memory of streams that are kept",
        "bytes",
        {"{{model}}": "sum by (model) (lmi_front_end_answers_kept_bytes)"},
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


def metrics() -> Iterator[str]:
    """Yield the lines of the table of Triton's metrics."""
    rows = ((f"`{name}`", kind.lower(), text) for name, (kind, text) in FAMILIES.items())
    yield from table(("name", "kind", "meaning"), rows)


def vllm_metrics() -> Iterator[str]:
    """Yield the lines of the table of names that vLLM's server has too."""
    rows = (
        (f"`{name}`", ", ".join(f"`{each}`" for each in theirs))
        for name, theirs in VLLM_NAMES.items()
    )
    yield from table(("name here", "name there"), rows)


def front_end_metrics() -> Iterator[str]:
    """Yield the lines of the table of the front end's own metrics."""
    rows = ((f"`{name}`", kind, text) for name, (kind, _, text) in FRONT_END_FAMILIES.items())
    yield from table(("name", "kind", "meaning"), rows)


def questions() -> Iterator[str]:
    """Yield the lines of the table of what to ask."""
    rows = (
        (each.title, f"`{list(each.queries.values())[-1].replace('$__rate_interval', '5m')}`")
        for each in QUESTIONS
    )
    yield from table(("what", "PromQL"), rows)
