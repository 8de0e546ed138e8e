from pathlib import Path

import pytest

from lmi_backend.options.release_words import problem_of_text, problem_of_value, problem_of_word
from lmi_backend.options.signature import Signature, installed_signature
from tests.support.queried_engine import queried_release


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signature:
    found = installed_signature("vllm", queried_release(tmp_path, monkeypatch))
    assert found
    return found


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("spec_method", "eagle", ""),
        ("spec_method", "medusa", "accepted: ngram, draft_model, eagle, eagle3"),
        ("speculative_config", '{"method": "eagle", "prompt-lookup-max": 3}', ""),
        ("speculative_config", '{"method": null}', ""),
        (
            "speculative_config",
            '{"method": "medusa"}',
            'has "method": "medusa", which is not what vLLM 9.1.0 takes; accepted: ngram, draft',
        ),
        ("speculative_config", '{"methods": 1}', 'vLLM 9.1.0 does not know, "methods"; did you'),
        ("pool_config", '{"backend": "FLASH", "kind": "last"}', ""),
        ("pool_config", '{"made": 1}', "a key that vLLM 9.1.0 does not know"),
        ("reasoning_effort_map", '{"a": "b"}', ""),
        ("reasoning_effort_map", "[1]", "accepted: a JSON object"),
        ("max_log_len", "many", "accepted: a whole number"),
    ],
)
def test_a_text_is_judged_by_the_release(
    known: Signature, name: str, text: str, problem: str
) -> None:
    verdict = problem_of_text(known, name, text)
    assert problem in verdict
    assert bool(verdict) == bool(problem)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("max_logprobs", 5, ""),
        ("policy", "fcfs", ""),
        ("policy", "lifo", "is not what vLLM 9.1.0 takes; accepted: fcfs, priority"),
        ("swap_space", 4, "sets swap_space, which vLLM 9.1.0 does not have"),
        ("speculative_config.model", "org/d", ""),
        ("speculative_config.length", 3, 'does not know, "length"'),
        ("speculative_config.method", "medusa", "accepted: ngram"),
        ("speculative_config", {"method": "eagle"}, ""),
        ("speculative_config", {"method": "medusa"}, "accepted: ngram"),
        ("tool_call_parser", "hermes", ""),
    ],
)
def test_a_value_is_judged_by_the_release(
    known: Signature, path: str, value: object, problem: str
) -> None:
    verdict = problem_of_value(known, path, value)
    assert problem in verdict
    assert bool(verdict) == bool(problem)


@pytest.mark.parametrize(
    ("name", "value", "is_known"),
    [
        ("quantization", "awq", True),
        ("quantization", "AWQ", True),
        ("quantization", None, True),
        ("quantization", "squeeze", False),
        ("kv_cache_dtype", "fp9", False),
        ("tool_call_parser", "mistral", False),
        ("reasoning_parser", "None", True),
        ("device_name", "anything", True),
    ],
)
def test_a_word_that_the_release_does_not_have_needs_a_plugin(
    known: Signature, name: str, value: str | None, is_known: bool
) -> None:
    alone = problem_of_word(known, name, value, may_be_added=False)
    doubtful = problem_of_word(known, name, value, may_be_added=True)
    assert ("no plugin is installed that adds it" in alone) is not is_known
    assert ("vLLM 9.1.0 has it only from a plugin" in doubtful) is not is_known
