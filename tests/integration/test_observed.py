"""What an operator sees: figures, lines in the log, and limits that a request brings along."""

import re
from typing import Any

from tests.support.answers.triton_client import streamed, strings
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_histograms_count_requests_and_tokens(served: Served) -> None:
    names = [
        "lmi_time_to_first_token_seconds_count",
        "lmi_inter_token_seconds_count",
        "lmi_request_seconds_count",
        "lmi_request_prompt_tokens_sum",
        "lmi_request_generation_tokens_sum",
    ]
    body = {"inputs": "a b", "stream": True, "parameters": {"max_new_tokens": 11}}
    served.settled(names[0], "echo")
    before = [served.metric(name, "echo") for name in names]
    with served.events("echo", body) as events:
        first, *_ = events
    # Tokens that share the first response have no time from one to the next.
    between = 11 - len(first["text_output"].replace(" ", ""))
    served.settled(names[0], "echo")
    added = [served.metric(name, "echo") - was for name, was in zip(names, before, strict=True)]
    assert added == [1, between, 1, 2, 11]
    wait_for(lambda: served.metric("lmi_worker_ready", "echo") == 1)
    assert served.metric("lmi_time_to_first_token_seconds_sum", "echo") > 0


def test_the_log_has_a_line_for_a_request_and_not_its_text(served: Served) -> None:
    body = {"id": "order-66", "text_input": "A secret prompt", "max_tokens": 3}
    assert served.generate("tiny", body | {"traceparent": PARENT})[0] == 200

    def line() -> str:
        log = served.log()
        assert "secret prompt" not in log
        return next((each for each in log.splitlines() if "order-66" in each), "")

    wait_for(line)
    words = line().partition("request ")[2].rstrip('"').split()
    fields = dict(word.split("=") for word in words)
    assert fields["model"] == "tiny"
    assert (fields["outcome"], fields["generation_tokens"]) == ("length", "3")
    assert 0 < float(fields["first_ms"]) <= float(fields["total_ms"])


def test_fleets_see_the_cache_and_the_adapters_in_use(served: Served) -> None:
    """Series as vLLM's own server has them; `echo` has neither."""

    def seen(name: str) -> dict[str, str]:
        found = re.findall(rf"^vllm:{name}{{(.*)}} ", served.ask("/metrics")[2].decode(), re.M)
        assert len(found) <= 1
        return dict(re.findall(r'(\w+)="([^"]*)"', found[0])) if found else {}

    # The front end has found both models, and their workers have said how they are.
    cache = wait_for(lambda: seen("cache_config_info"))
    tokens = int(cache["block_size"]) * int(cache["num_gpu_blocks"])
    served.logged(f"KV cache size: {tokens:,} tokens")
    idle = {"max_lora": "4", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    wait_for(lambda: seen("lora_requests_info") == idle)
    body = {
        "text_input": "Count to one hundred:",
        "stream": True,
        "parameters": {"max_tokens": 900, "ignore_eos": True, "lora_name": "wrong"},
    }
    running = idle | {"running_lora_adapters": "wrong"}

    def is_seen_under_a_stream() -> bool:
        with served.events("tiny", body) as events:
            assert next(events)
            return any(seen("lora_requests_info") == running for _ in range(20))

    # On a busy machine a stream may be over before one has looked.
    wait_for(is_seen_under_a_stream)
    wait_for(lambda: seen("lora_requests_info") == idle)


BOARD = (
    "e2e_request_latency_seconds_bucket", "prompt_tokens_total", "generation_tokens_total",
    "inter_token_latency_seconds_sum", "time_to_first_token_seconds_count", "num_requests_running",
    "num_requests_waiting", "kv_cache_usage_perc", "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket", "request_success_total",
)  # fmt: skip
"""Of examples/observability/prometheus_grafana/grafana.json, vllm-project/vllm 4b5c627."""


def test_boards_and_tests_of_vllms_find_their_names(served: Served) -> None:
    """The sums of ci/L0_backend_vllm/metrics_test, triton-inference-server/vllm_backend 8de0c14."""
    body = {"text_input": "a b c", "stream": False, "parameters": {"max_tokens": "16"}}
    assert served.generate("echo", body)[0] == 200
    with served.events("echo", body | {"stream": True}) as events:
        assert len(list(events)) > 1
    same = {
        "vllm:prompt_tokens_total": "lmi_prompt_tokens_total",
        "vllm:generation_tokens_total": "lmi_generation_tokens_total",
        "vllm:time_to_first_token_seconds_count": "lmi_time_to_first_token_seconds_count",
        "vllm:time_per_output_token_seconds_count": "lmi_inter_token_seconds_count",
        "vllm:e2e_request_latency_seconds_sum": "lmi_request_seconds_sum",
        "vllm:request_prompt_tokens_sum": "lmi_request_prompt_tokens_sum",
        "vllm:request_generation_tokens_count": "lmi_request_generation_tokens_count",
        "vllm:request_params_n_sum": "lmi_request_answers_sum",
    }
    # Of an answer that is not streamed the time of the first token is known too.
    known = served.settled("vllm:time_per_output_token_seconds_count", "tiny")
    more = {"max_tokens": "16", "ignore_eos": True}
    assert served.generate("tiny", body | {"parameters": more})[0] == 200
    wait_for(
        lambda: served.metric("vllm:time_per_output_token_seconds_count", "tiny") == known + 15
    )
    values = lambda names: [served.metric(name, "echo") for name in names]  # noqa: E731
    wait_for(lambda: values(same) == values(same.values()) and all(values(same)))
    text = served.metrics()
    for name in BOARD:
        lines = re.findall(rf"^vllm:{name}{{(.*)}} ", text, re.M)
        assert any('model_name="echo"' in line and 'version="1"' in line for line in lines), name


def test_a_request_ends_at_its_own_timeout(served: Served) -> None:
    # 100,000 µs, where the answer takes ten seconds.
    more: dict[str, Any] = {"parameters": {"max_tokens": 1000}, "timeout": 100_000}
    (answer,) = streamed(served, "echo", {"text_input": strings("a b c")}, **more)
    assert "longer than its timeout" in str(answer)
