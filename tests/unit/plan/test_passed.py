from pathlib import Path

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.passed import passed_on
from tests.support.queried_engine import queried_release


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return queried_release(tmp_path, monkeypatch)


def passed(python: str, *lines: str) -> tuple[dict[str, str], dict[str, object]]:
    text = "\n".join(["option.rolling_batch=vllm", *lines])
    options = resolve_options(parse_properties(text), {}, folder=Path("/none"))
    return passed_on(options, python, Hardware(), Explanation())


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


def test_a_flag_of_vllms_image_may_be_an_opposite(python: str) -> None:
    environment = {"SM_VLLM_DISABLE_PREFIX_CACHING": ""}
    options = resolve_options([], environment, folder=Path("/none"))
    assert passed_on(options, python, Hardware(), Explanation()) == (
        {"enable_prefix_caching": "false"},
        {},
    )


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["option.engine_plugins=a"], "takes objects of vLLM 9.1.0, which no text here makes"),
        (["option.middleware=a"], "is not supported: code in vLLM's own server is not run"),
        (["option.disable_prefix_caching=maybe"], "accepted: true or false"),
        (
            ["option.disable_prefix_caching=true", "option.enable_prefix_caching=true"],
            "contradicts option.enable_prefix_caching: both set it",
        ),
        (
            ["option.disable_auto_tool_choice=true"],
            "turns option.enable_auto_tool_choice off; accepted: that option",
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
    options = resolve_options(parse_properties(text), environment, folder=Path("/none"))
    explanation = Explanation()
    passed_on(options, "", Hardware(), explanation)
    assert len(explanation.notes) == 2
    for note, name in zip(
        sorted(explanation.notes), ("SM_VLLM_NONSENSE=1", "option.bananas=3"), strict=True
    ):
        assert name in note
        assert "does not have; a newer vllm has to accept it" in note
