"""What is counted, as series of Prometheus."""

from lmi_backend.errors import LmiError, UnavailableError
from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.pool.rank_group import WorkerStats
from lmi_backend.serving.metrics import (
    FAMILIES,
    FAST_PATH,
    HISTOGRAM,
    as_vllm,
    gauges_and_counters,
    histograms,
    series_names,
    vllm_series_names,
)
from lmi_backend.serving.request_state import outcome_of
from lmi_backend.serving.stats import RequestStats, StatsSnapshot
from tests.support.doubles.service_bench import state_of

WORKERS = [
    WorkerStats(
        EngineStats(
            running=2,
            waiting=1,
            kv_cache_usage=0.5,
            kv_block_size=32,
            kv_blocks=1000,
            fast_paths=(
                ("waits", "", ""),
                ("media", "it is gone", "no URLs"),
                ("load", "option.x", ""),
            ),
        ),
        7,
        1,
        is_ready=True,
        is_adopted=True,
    ),
    WorkerStats(EngineStats(prompt_tokens_looked_up=9, tokens_drafted=3), 4, 0, is_ready=False),
]


def snapshot(waiting: int = 0, workers: list[WorkerStats] = WORKERS) -> StatsSnapshot:
    stats = RequestStats()
    state = state_of()
    stats.sent(state, [Delta("a", 1, num_prompt_tokens=3)])
    stats.sent(state, [Delta("b", 2, "stop", num_prompt_tokens=3)])
    stats.ended(state, "stop")
    return stats.snapshot(0, workers, waiting)


def test_every_family_has_series_and_every_series_a_family() -> None:
    now = snapshot()
    made = {name for name, _ in gauges_and_counters("m", now) | histograms("m", now)}
    assert made == {series for name in FAMILIES for series in series_names(name)}


def test_a_worker_has_its_number() -> None:
    series = gauges_and_counters("m", snapshot())
    first, second = ((("model", "m"), ("worker", worker)) for worker in "01")
    assert (series["lmi_worker_ready", first], series["lmi_worker_ready", second]) == (1, 0)
    assert (series["lmi_worker_adopted", first], series["lmi_worker_adopted", second]) == (1, 0)
    assert series["lmi_worker_requests_total", first] == 7
    assert series["lmi_worker_deaths_total", first] == 1
    assert series["lmi_engine_kv_cache_usage_ratio", first] == 0.5
    assert series["lmi_engine_kv_cache_blocks", first] == 1000
    assert series["lmi_engine_kv_cache_blocks_used", first] == 500
    assert series["lmi_engine_kv_cache_block_tokens", first] == 32
    assert series["lmi_engine_prompt_tokens_looked_up_total", second] == 9
    assert series["lmi_engine_tokens_drafted_total", second] == 3


def test_a_fast_path_has_one_series_with_its_state() -> None:
    series = gauges_and_counters("m", snapshot())
    first = (("model", "m"), ("worker", "0"))
    assert {key: value for key, value in series.items() if key[0] == FAST_PATH} == {
        (FAST_PATH, (*first, ("name", "waits"), ("state", "private"))): 1,
        (FAST_PATH, (*first, ("name", "media"), ("state", "public"))): 0,
        (FAST_PATH, (*first, ("name", "load"), ("state", "chosen"))): 0,
    }


def test_a_histogram_is_buckets_sum_and_count() -> None:
    series = histograms("m", snapshot())
    own = (("model", "m"),)
    for name in (name for name, (kind, _) in FAMILIES.items() if kind == HISTOGRAM):
        labels = (*own, ("worker", "1")) if name.startswith("lmi_engine_") else own
        buckets = [
            v
            for (series_name, its), v in series.items()
            if series_name == f"{name}_bucket" and its[:-1] == labels
        ]
        assert buckets == sorted(buckets)
        assert (
            series[f"{name}_bucket", (*labels, ("le", "+Inf"))] == series[f"{name}_count", labels]
        )
    assert series["lmi_inter_token_seconds_count", own] == 2
    assert series["lmi_request_prompt_tokens_sum", own] == 3
    assert series["lmi_request_generation_tokens_sum", own] == 3
    assert series["lmi_request_answers_sum", own] == 1
    assert series_names("lmi_requests_open") == ["lmi_requests_open"]


def test_what_vllm_has_too_has_its_names_and_labels() -> None:
    now = snapshot()
    ours = gauges_and_counters("m", now) | histograms("m", now)
    series = as_vllm(ours, "1")
    assert ours["lmi_responses_total", (("model", "m"),)] == 2
    own = (("model", "m"), ("version", "1"), ("model_name", "m"))
    assert series["vllm:prompt_tokens_total", own] == 3
    assert series["vllm:generation_tokens_total", own] == 3
    assert series["vllm:request_success_total", (*own, ("finished_reason", "stop"))] == 1
    assert series["vllm:num_requests_running", (*own, ("engine", "0"))] == 2
    everything = (*own, ("le", "+Inf"))
    for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
        assert series[f"vllm:{name}_bucket", everything] == series[f"vllm:{name}_count", own] == 2
    assert {name for name, _ in series} == {
        theirs for name in FAMILIES for theirs in vllm_series_names(name)
    }


def test_the_parts_of_a_requests_time_are_each_engines() -> None:
    stats = EngineStats(preemptions=2)
    stats.queue_seconds.observe(0.3)
    now = snapshot(workers=[WorkerStats(stats, 1, 0, is_ready=True)])
    series = as_vllm(gauges_and_counters("m", now) | histograms("m", now), "1")
    own = (("model", "m"), ("version", "1"), ("model_name", "m"), ("engine", "0"))
    assert series["vllm:num_preemptions_total", own] == 2
    assert series["vllm:request_queue_time_seconds_sum", own] == 0.3
    assert series["vllm:request_queue_time_seconds_bucket", (*own, ("le", "0.2"))] == 0
    assert series["vllm:request_queue_time_seconds_bucket", (*own, ("le", "0.5"))] == 1


def test_what_is_refused_for_now_is_a_rejection_and_no_error_a_success() -> None:
    stats = RequestStats()
    stats.refused(UnavailableError("the queue is full"))
    stats.refused(LmiError("no"))
    state = state_of()
    stats.ended(state, outcome_of(HttpChunk(b"{}", is_last=True, status=503)))
    series = as_vllm(gauges_and_counters("m", stats.snapshot(0, [])), "1")
    own = (("model", "m"), ("version", "1"), ("model_name", "m"))
    assert series["vllm:admission_rejections_total", own] == 2
    assert not [name for name, _ in series if name == "vllm:request_success_total"]
