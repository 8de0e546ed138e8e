"""What an operator looks at: the page of metrics, and a Grafana dashboard of the same questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lmi_backend.frontend.operators.metrics import FAMILIES as FRONT_END_FAMILIES
from lmi_backend.serving.metrics import FAMILIES, VLLM_NAMES

_HEAD = """# Metrics

*For operators: each metric, what it counts, and where to scrape it.*

Triton's `/metrics` has these metrics. Each has the label `model`, and some have `worker`.
`lmi_requests_total` also has `outcome`: `stop`, `length`, `error` or the code of an error.
`lmi_engine_fast_path` has `name` and `state` ([engines.md](engines.md)): `private` is in use,
`public` means that vLLM differs, `chosen` means that an option decided. A histogram has `_bucket`,
`_sum` and `_count`, for `histogram_quantile`. Triton types each of them as a counter. The front
end's `/metrics` types the family as a histogram, for collectors that need the type.
"""
_VLLM = """
Metrics of vLLM's server and of Triton's vLLM backend have their names here too. They are at most a
second old. Their labels are `model`, `version` and `model_name`; those of a worker have `engine`.
Dashboards for these servers work unchanged. `REPORT_CUSTOM_METRICS: "false"` in the parameters of
config.pbtxt turns them off.

For non-streamed answers vLLM reports the first token's time. Elsewhere (OpenAI's bodies, several
answers, other engines) the response time counts as the first-token time, without inter-token times.
Not here: `vllm:request_{queue,prefill,decode}_time_seconds` and `vllm:iteration_tokens_total`.

| name here | name there |
| --- | --- |"""
_TRTLLM = """
TensorRT-LLM reports its KV cache by `get_stats_async`, read once a second under load.
With `option.enable_iter_perf_stats=false` they stay 0. Prompt tokens count as whole blocks.
"""
_FLEETS = """
The front end's `/metrics` shows all of this, and the metrics that endpoint pickers route by. These
have the names of vLLM's own server, one series over all models and workers:

- `vllm:num_requests_running`, `vllm:num_requests_waiting`, and `vllm:kv_cache_usage_perc` of the
  fullest worker; with one model they have the label `model_name`
- `vllm:cache_config_info` (`block_size`, `num_gpu_blocks`), unless models differ in `block_size`
- `vllm:lora_requests_info` (`max_lora`, `running_lora_adapters`, `waiting_lora_adapters`)

The front end's own metrics have the labels `model` and `process`. Each of `--frontend-processes`
counts its own, and any of them answers.

| name | kind | meaning |
| --- | --- | --- |"""
_QUESTIONS_HEAD = """
## What to ask

[deploy/](../deploy/README.md) has these as a Grafana dashboard, and Prometheus alerts.
"""


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
    yield _TRTLLM
    yield _FLEETS
    for name, (kind, _, text) in FRONT_END_FAMILIES.items():
        yield f"| `{name}` | {kind} | {text} |"
    yield _QUESTIONS_HEAD
    yield "| what | PromQL |"
    yield "| --- | --- |"
    for question in QUESTIONS:
        query = list(question.queries.values())[-1].replace("$__rate_interval", "5m")
        yield f"| {question.title} | `{query}` |"
