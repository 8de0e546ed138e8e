"""The table of metrics, and the series that Prometheus reads, made from a `StatsSnapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.errors import UnavailableError
from lmi_backend.ipc.engine import fast_path_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.ipc.engine import Histogram
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.stats import StatsSnapshot

FAST_PATH: Final = "lmi_engine_fast_path"
GAUGE, COUNTER, HISTOGRAM = "GAUGE", "COUNTER", "HISTOGRAM"

FAMILIES: Final = {
    "lmi_requests_open": (GAUGE, "Requests in progress"),
    "lmi_requests_total": (COUNTER, "Finished requests, by outcome"),
    "lmi_requests_rejected_total": (
        COUNTER,
        "Of these, refused with 503: a queue was full, or no worker was ready",
    ),
    "lmi_responses_total": (COUNTER, "Responses sent; tokens that come together share one"),
    "lmi_prompt_tokens_total": (COUNTER, "Prompt tokens of finished requests"),
    "lmi_generation_tokens_total": (COUNTER, "Tokens generated and sent"),
    "lmi_time_to_first_token_seconds": (
        HISTOGRAM,
        "From a request to its first response; of a whole answer to its first token, if known",
    ),
    "lmi_inter_token_seconds": (
        HISTOGRAM,
        "From a token to the next; those of one response share its time",
    ),
    "lmi_request_seconds": (HISTOGRAM, "From a request to its last response"),
    "lmi_request_prompt_tokens": (HISTOGRAM, "Prompt tokens of a request that was answered"),
    "lmi_request_generation_tokens": (HISTOGRAM, "Tokens of the answers to such a request"),
    "lmi_request_answers": (HISTOGRAM, "Answers to such a request, for all its prompts"),
    "lmi_engine_requests_running": (GAUGE, "Requests the engine generates for"),
    "lmi_engine_requests_waiting": (
        GAUGE,
        "Queued requests: in the engine, plus this worker's share of the model's queue",
    ),
    "lmi_engine_kv_cache_usage_ratio": (
        GAUGE,
        "Share of KV-cache blocks in use, 0 to 1; of the fullest copy with data parallelism",
    ),
    "lmi_engine_kv_cache_blocks": (
        GAUGE,
        "KV-cache blocks of the engine, of one copy with data parallelism; 0 if it does not say",
    ),
    "lmi_engine_kv_cache_blocks_used": (GAUGE, "Of these, in use; of the fullest copy"),
    "lmi_engine_kv_cache_block_tokens": (GAUGE, "Tokens that a KV-cache block holds"),
    "lmi_engine_prompt_tokens_looked_up_total": (
        COUNTER,
        "Prompt tokens looked for in the prefix cache",
    ),
    "lmi_engine_prompt_tokens_cached_total": (COUNTER, "Prompt tokens found in the prefix cache"),
    "lmi_engine_tokens_drafted_total": (COUNTER, "Tokens that speculation proposed"),
    "lmi_engine_tokens_accepted_total": (COUNTER, "Tokens that speculation proposed and were kept"),
    "lmi_engine_preemptions_total": (
        COUNTER,
        "Times a running request lost its KV cache to others, and was computed again",
    ),
    "lmi_engine_queue_seconds": (HISTOGRAM, "From a request's arrival in vLLM to its first step"),
    "lmi_engine_prefill_seconds": (HISTOGRAM, "From its first step to its first token"),
    "lmi_engine_decode_seconds": (HISTOGRAM, "From its first token to its last one"),
    FAST_PATH: (
        GAUGE,
        "Whether a fast path inside the engine is in use: 1, or 0 and why (`public`, `chosen`)",
    ),
    "lmi_migrations_total": (COUNTER, "Times a request resumed after its worker had died"),
    "lmi_repeated_tokens_total": (
        COUNTER,
        "Tokens their answers had then: computed again, and counted for no client again",
    ),
    "lmi_requests_held_total": (COUNTER, "Requests that waited because no worker was ready"),
    "lmi_requests_given_up_total": (
        COUNTER,
        "Requests that waited for a worker, to begin or to resume, and none was ready in time",
    ),
    "lmi_prefix_hits_total": (
        COUNTER,
        "Requests sent to the worker that had most of their prompt in its prefix cache",
    ),
    "lmi_prefix_lost_total": (
        COUNTER,
        "Such requests of whose prompt the cache had much less than was expected",
    ),
    "lmi_prefix_moves_total": (
        COUNTER,
        "Requests sent to another worker, because that one had more to do",
    ),
    "lmi_worker_ready": (GAUGE, "Whether a worker accepts requests, 0 or 1"),
    "lmi_worker_wanted": (
        GAUGE,
        "Whether a worker is to run: 0 for one that the load does not need",
    ),
    "lmi_worker_spare": (GAUGE, "Whether a process waits to replace a worker, 0 or 1"),
    "lmi_worker_adopted": (
        GAUGE,
        "Whether a worker has outlived the stub that started it, 0 or 1",
    ),
    "lmi_worker_requests_total": (COUNTER, "Requests assigned to this worker"),
    "lmi_worker_deaths_total": (COUNTER, "Times a worker died"),
}
"""Name to kind and help of every metric."""

WITH_STATE: Final = (FAST_PATH,)
"""Metrics with a series for each state, which disappears when another state begins."""

VLLM_NAMES: Final = {
    "lmi_requests_total": ("vllm:request_success_total",),
    "lmi_prompt_tokens_total": ("vllm:prompt_tokens_total",),
    "lmi_generation_tokens_total": ("vllm:generation_tokens_total",),
    "lmi_time_to_first_token_seconds": ("vllm:time_to_first_token_seconds",),
    "lmi_inter_token_seconds": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    "lmi_request_seconds": ("vllm:e2e_request_latency_seconds",),
    "lmi_request_prompt_tokens": ("vllm:request_prompt_tokens",),
    "lmi_request_generation_tokens": ("vllm:request_generation_tokens",),
    "lmi_request_answers": ("vllm:request_params_n",),
    "lmi_engine_requests_running": ("vllm:num_requests_running",),
    "lmi_engine_requests_waiting": ("vllm:num_requests_waiting",),
    "lmi_engine_kv_cache_usage_ratio": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "lmi_engine_prompt_tokens_looked_up_total": ("vllm:prefix_cache_queries_total",),
    "lmi_engine_prompt_tokens_cached_total": ("vllm:prefix_cache_hits_total",),
    "lmi_engine_tokens_drafted_total": ("vllm:spec_decode_num_draft_tokens_total",),
    "lmi_engine_tokens_accepted_total": ("vllm:spec_decode_num_accepted_tokens_total",),
    "lmi_requests_rejected_total": ("vllm:admission_rejections_total",),
    "lmi_engine_preemptions_total": ("vllm:num_preemptions_total",),
    "lmi_engine_queue_seconds": ("vllm:request_queue_time_seconds",),
    "lmi_engine_prefill_seconds": ("vllm:request_prefill_time_seconds",),
    "lmi_engine_decode_seconds": ("vllm:request_decode_time_seconds",),
}
"""What vLLM's server and Triton's vLLM backend call a metric, now or in older releases."""
_FINISHED: Final = {"stop": "stop", "length": "length", "cancelled": "abort"}
"""An outcome to vLLM's name for it; of others it has no series."""

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], float]


def series_names(name: str) -> list[str]:
    """Return the names under which a family's values appear: a histogram has three."""
    kind, _ = FAMILIES[name]
    return [f"{name}_{part}" for part in _PARTS] if kind == HISTOGRAM else [name]


def vllm_series_names(name: str) -> list[str]:
    """Return the names under which vLLM has a family's values; none for most."""
    return [theirs for series in series_names(name) for theirs in _VLLM_SERIES.get(series, ())]


_PARTS: Final = ("bucket", "sum", "count")


def gauges_and_counters(model: str, now: StatsSnapshot) -> Series:
    own: Labels = (("model", model),)
    series: Series = {
        ("lmi_requests_open", own): now.open,
        ("lmi_responses_total", own): now.responses,
        ("lmi_prompt_tokens_total", own): now.prompt_tokens,
        ("lmi_generation_tokens_total", own): now.generation_tokens,
        ("lmi_migrations_total", own): now.moved,
        ("lmi_repeated_tokens_total", own): now.repeated_tokens,
        ("lmi_requests_held_total", own): now.held,
        ("lmi_requests_given_up_total", own): now.given_up,
        ("lmi_prefix_hits_total", own): now.prefix_hits,
        ("lmi_prefix_lost_total", own): now.prefix_lost,
        ("lmi_prefix_moves_total", own): now.prefix_moves,
    }
    series["lmi_requests_rejected_total", own] = now.ended.get(UnavailableError.code.lower(), 0)
    for outcome, count in now.ended.items():
        series["lmi_requests_total", (*own, ("outcome", outcome))] = count
    for index, worker in enumerate(now.workers):
        labels = (*own, ("worker", str(index)))
        series.update({(name, labels): value for name, value in _of_worker(worker)})
        series.update(_of_fast_paths(worker, labels))
        # So their sum counts each request once, and a worker's value can be compared as before.
        share, rest = divmod(now.waiting, len(now.workers))
        series["lmi_engine_requests_waiting", labels] += share + (index < rest)
    return series


def _of_worker(worker: WorkerStats) -> Iterator[tuple[str, float]]:
    stats = worker.stats
    yield "lmi_engine_requests_running", stats.running
    yield "lmi_engine_requests_waiting", stats.waiting
    yield "lmi_engine_kv_cache_usage_ratio", stats.kv_cache_usage
    yield "lmi_engine_kv_cache_blocks", stats.kv_blocks
    yield "lmi_engine_kv_cache_blocks_used", round(stats.kv_cache_usage * stats.kv_blocks)
    yield "lmi_engine_kv_cache_block_tokens", stats.kv_block_size
    yield "lmi_engine_prompt_tokens_looked_up_total", stats.prompt_tokens_looked_up
    yield "lmi_engine_prompt_tokens_cached_total", stats.prompt_tokens_cached
    yield "lmi_engine_tokens_drafted_total", stats.tokens_drafted
    yield "lmi_engine_tokens_accepted_total", stats.tokens_accepted
    yield "lmi_engine_preemptions_total", stats.preemptions
    yield "lmi_worker_ready", worker.is_ready
    yield "lmi_worker_wanted", worker.is_wanted
    yield "lmi_worker_spare", worker.has_spare
    yield "lmi_worker_adopted", worker.is_adopted
    yield "lmi_worker_requests_total", worker.assigned
    yield "lmi_worker_deaths_total", worker.deaths


def _of_fast_paths(worker: WorkerStats, labels: Labels) -> Iterator[tuple[tuple[str, Labels], int]]:
    for name, why_off, _ in worker.stats.fast_paths:
        state = fast_path_state(why_off)
        yield (FAST_PATH, (*labels, ("name", name), ("state", state))), int(not why_off)


def histograms(model: str, now: StatsSnapshot) -> Series:
    own: Labels = (("model", model),)
    series: Series = {}
    for name, histogram in (
        ("lmi_time_to_first_token_seconds", now.first_seconds),
        ("lmi_inter_token_seconds", now.token_seconds),
        ("lmi_request_seconds", now.request_seconds),
        ("lmi_request_prompt_tokens", now.prompt_lengths),
        ("lmi_request_generation_tokens", now.answer_lengths),
        ("lmi_request_answers", now.answer_counts),
    ):
        series.update(_of_histogram(name, own, histogram))
    for index, worker in enumerate(now.workers):
        for part in ("queue_seconds", "prefill_seconds", "decode_seconds"):
            histogram = getattr(worker.stats, part)
            labels = (*own, ("worker", str(index)))
            series.update(_of_histogram(f"lmi_engine_{part}", labels, histogram))
    return series


def _of_histogram(name: str, own: Labels, histogram: Histogram) -> Series:
    buckets: Series = {
        (f"{name}_bucket", (*own, ("le", edge))): count for edge, count in histogram.buckets()
    }
    return buckets | {
        (f"{name}_sum", own): histogram.total,
        (f"{name}_count", own): histogram.count,
    }


def as_vllm(series: Series, version: str) -> Series:
    """Return what vLLM has too of a model, by its names and labels."""
    return {
        (theirs, renamed): value
        for (name, labels), value in series.items()
        if name in _VLLM_SERIES and (renamed := _vllm_labels(dict(labels), version))
        for theirs in _VLLM_SERIES[name]
    }


def _vllm_labels(labels: dict[str, str], version: str) -> Labels:
    """Return a series' labels in vLLM's terms; none if it has no such series."""
    renamed = {"model": labels["model"], "version": version, "model_name": labels["model"]}
    if "outcome" in labels:
        if labels["outcome"] not in _FINISHED:
            return ()
        renamed["finished_reason"] = _FINISHED[labels["outcome"]]
    for ours, theirs in (("worker", "engine"), ("le", "le")):
        if ours in labels:
            renamed[theirs] = labels[ours]
    return tuple(renamed.items())


_VLLM_SERIES: Final = {
    series: tuple(theirs + series.removeprefix(name) for theirs in VLLM_NAMES[name])
    for name in VLLM_NAMES
    for series in series_names(name)
}
"""Name of an lmi_ series to vLLM's names for it."""
