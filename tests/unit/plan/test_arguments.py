"""What an engine is given, and what several workers of a machine cannot share."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.plan.arguments import engine_arguments, explain_ports, passed_on
from lmi_backend.plan.engine_plan import Degrees, Explanation
from lmi_backend.plan.hardware import Hardware
from tests.support.packages.queried_engine import queried_release
from tests.support.records.plans import options_of


def arguments(text: str) -> dict[str, Any]:
    made = engine_arguments(options_of(text), Degrees(2, 1), 8, Explanation())
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    return {name: value for name, value in made.items() if name not in sizes}


def test_a_default_of_lmis_guide_gives_way() -> None:
    set_by_user = "option.rolling_batch=lmi-dist\noption.gpu_memory_utilization=0.5"
    assert arguments(set_by_user)["gpu_memory_utilization"] == 0.5


def test_acceptance_is_measured_only_where_something_is_drafted() -> None:
    text = "option.rolling_batch=lmi-dist\noption.record_acceptance_rate=true"
    assert "per_request_spec_decode_metrics" not in arguments(text)
    drafted = f"{text}\noption.speculative_draft_model=org/d"
    assert arguments(drafted)["per_request_spec_decode_metrics"] == "summary"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'speculative_config={"model": "a"}\noption.speculative_draft_model=b',
            "option.speculative_draft_model=b contradicts option.speculative_config: both set "
            "speculative_config.model",
        ),
        (
            'speculative_draft_model=b\noption.speculative_config={"model": "a"}',
            "both set speculative_config",
        ),
        (
            'structured_outputs_config={"backend": "a"}\noption.guided_decoding_backend=guidance',
            "option.guided_decoding_backend=guidance belongs into option.structured_outputs_config",
        ),
        (
            "guided_decoding_backend=outlines\noption.guided_decoding_disable_any_whitespace=true",
            "backend=xgrammar or guidance",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        arguments(f"option.{text}")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("disable_any_whitespace=true", "xgrammar"),
        ("disable_additional_properties=true", "guidance"),
        ("disable_any_whitespace=true\noption.guided_decoding_backend=guidance", "guidance"),
        ("disable_any_whitespace=false\noption.guided_decoding_backend=outlines", "outlines"),
    ],
)
def test_a_library_is_named_that_has_what_is_asked(text: str, backend: str) -> None:
    made = arguments(f"option.guided_decoding_{text}")["structured_outputs_config"]
    assert made["backend"] == backend


EVENTS = {"enable_kv_cache_events": True, "publisher": "zmq"}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"endpoint": "tcp://*:1"}', "[" * 100_000])
def test_several_workers_publish_nothing_at_one_port(text: str) -> None:
    explain_ports({"kv_events_config": text}, 2, Explanation())
    passthrough = {"kv_events_config": json.dumps(EVENTS)}
    explain_ports(passthrough, 1, Explanation())
    with pytest.raises(PlanError, match=r"2 workers cannot publish at one port; accepted: one"):
        explain_ports(passthrough, 2, Explanation())


def test_what_each_worker_has_by_its_number_is_said() -> None:
    transfer = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"})
    explain_ports({"kv_transfer_config": transfer}, 2, why := Explanation())
    assert why.reasons == [
        "ports of option.kv_transfer_config: each worker has its own, by its number"
    ]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return queried_release(tmp_path, monkeypatch)


def passed(python: str, *lines: str) -> tuple[dict[str, str], dict[str, object]]:
    text = "\n".join(["option.rolling_batch=vllm", *lines])
    return passed_on(options_of(text), python, Hardware(), Explanation())


def test_arguments_of_the_engine_are_texts_and_those_of_its_server_values(python: str) -> None:
    lines = {
        "policy": "fcfs",
        "reasoning_effort_map": '{"medium": "low"}',
        "response_role": "bot",
        "enable_log_deltas": "FALSE",
        "max_log_len": "10",
        "tags": "a, b",
        "strict": "all",
    }
    texts, served = passed(python, *(f"option.{name}={text}" for name, text in lines.items()))
    assert texts == {"policy": "fcfs"}
    assert served == {
        "reasoning_effort_map": {"medium": "low"},
        "response_role": "bot",
        "enable_log_deltas": False,
        "max_log_len": 10,
        "tags": ["a", "b"],
        "strict": "all",
    }


@pytest.mark.parametrize(
    ("text", "turned"), [("true", "false"), ("TRUE", "false"), ("false", "true")]
)
def test_an_opposite_turns_the_argument_over(python: str, text: str, turned: str) -> None:
    texts, _ = passed(python, f"option.disable_prefix_caching={text}")
    assert texts == {"enable_prefix_caching": turned}
    _, served = passed(python, f"option.disable_log_deltas={text}")
    assert served == {"enable_log_deltas": turned == "true"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["option.engine_plugins=a"], "takes objects of vLLM 9.1.0, which no text here makes"),
        (["option.middleware=a"], "is not supported: code in vLLM's own server is not run"),
        (["option.disable_prefix_caching=maybe"], "accepted: true or false"),
        (
            ["option.disable_prefix_caching=true", "option.enable_prefix_caching=true"],
            "both set it",
        ),
        (
            ["option.disable_auto_tool_choice=true"],
            "turns option.enable_auto_tool_choice off; accepted",
        ),
        (["option.reasoning_effort_mat={}"], "did you mean option.reasoning_effort_map?"),
        (["option.hidden=1"], "is set by vllm 9.1.0 itself, which has no flag"),
    ],
)
def test_what_the_release_does_not_take_is_refused(
    python: str, lines: list[str], problem: str
) -> None:
    with pytest.raises(OptionError, match=problem.replace("?", r"\?")):
        passed(python, *lines)


def test_what_only_a_newer_release_may_have_is_told() -> None:
    """Where no engine is installed that could be asked, as on a laptop."""
    environment = {"SM_VLLM_NONSENSE": "1", "SM_VLLM_RESPONSE_ROLE": "bot"}
    text = "option.rolling_batch=vllm\noption.model_id=org/m\noption.bananas=3"
    explanation = Explanation()
    passed_on(options_of(text, environment), "", Hardware(), explanation)
    assert len(explanation.notes) == 2
    for note, name in zip(
        sorted(explanation.notes), ("SM_VLLM_NONSENSE=1", "option.bananas=3"), strict=True
    ):
        assert name in note
        assert "does not have; a newer vllm has to accept it" in note
