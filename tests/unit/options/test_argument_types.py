"""Which texts and values a release of an engine takes."""

from pathlib import Path

import pytest

from lmi_backend.options.argument_types import (
    is_text_for,
    problem_of,
    problem_of_value,
    problem_of_word,
    unknown_key,
    unknown_word,
    value_of,
)
from lmi_backend.options.signature import ANY_CASE, SCALED, Argument, Signature, installed_signature
from tests.support.packages.queried_engine import queried_release


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        ("bool", "true False", "maybe 1 None"),
        ("bool | None", "TRUE", "None"),
        ("int", "1 -1", "abc 0.5 3k"),
        ("int | None", "1 None", "abc"),
        ("float", "0.5 1e-3", "x"),
        ("str", "anything", ""),
        ("'a' | str", "anything", ""),
        ("'fcfs' | 'priority'", "fcfs", "FCFS foo"),
        ("'a' | None", "a None", "b"),
        ("1 | 8", "8", "9 '8'"),
        ("list[int]", "1,2 [1,2] 3", "a,b [1,b]"),
        ("list['model' | 'all'] | None", "model,all", "model,x"),
        ("set[str]", "a,b", ""),
        ("dict", "{} {'a':1}", "3 [1] x"),
        ("CompilationConfig", "{'a':1}", "3 x"),
        ("EPLBConfig | None", "None", "x"),
        ("Any", "anything", ""),
    ],
)
def test_text_is_judged_as_vllms_command_line_does(kind: str, taken: str, refused: str) -> None:
    for text in taken.split():
        assert problem_of(Argument(kind, ""), text.replace("'", '"')) == "", text
    for text in refused.split():
        assert "accepted: " in problem_of(Argument(kind, ""), text), text


def test_some_numbers_have_a_letter_behind_them() -> None:
    argument = Argument("int | None", "None", SCALED)
    for text in ("32", "32k", "2.5k", "32K"):
        assert problem_of(argument, text) == ""
    for text in ("0.5", "2.5K", "k"):
        assert problem_of(argument, text)


def test_a_backend_may_be_written_with_hyphens() -> None:
    assert problem_of(Argument("'deep_gemm'", "", ANY_CASE), "DEEP-GEMM") == ""
    assert problem_of(Argument("'deep_gemm'", ""), "deep-gemm")


def test_a_value_is_one_of_the_words() -> None:
    assert unknown_word("1 | 8 | 16 | None", 8, "it") == ""
    assert unknown_word("1 | 8 | 16", 10, "it") == "is not what it takes; accepted: 1, 8, 16"
    assert unknown_word("str", "anything", "it") == unknown_word("'a' | str", "b", "it") == ""


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bool", "TRUE", True),
        ("int | None", "None", None),
        ("list[str]", '["a", "b"]', ["a", "b"]),
        ("set[str]", "a, b", ["a", "b"]),
        ("1 | 8", "8", 8),
        ("float", "1.5", 1.5),
        ("dict", '{"a": 1}', {"a": 1}),
    ],
)
def test_a_text_has_the_value_of_its_type(kind: str, text: str, value: object) -> None:
    assert value_of(kind, text) == value
    assert is_text_for(kind)


@pytest.mark.parametrize("kind", ["list[LoRAModulePath] | None", "PoolerConfig"])
def test_no_text_is_an_object_of_a_class(kind: str) -> None:
    assert not is_text_for(kind)


def test_an_object_has_the_keys_of_its_class() -> None:
    assert unknown_key(["mode", "level"], {"mode": 3}, "it") == ""
    assert unknown_key(["mode"], {"mod": 3}, "it").endswith('know, "mod"; did you mean mode?')
    assert unknown_key(["mode"], {"x": 3}, "it").endswith('"x"')


def test_what_is_too_deep_is_no_value() -> None:
    for kind in ("CompilationConfig", "list[int]", "dict"):
        assert "accepted: " in problem_of(Argument(kind, ""), "[" * 100_000)
        assert kind == "list[int]" or problem_of(Argument(kind, ""), '{"a":' * 100_000)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Signature:
    found = installed_signature("vllm", queried_release(tmp_path, monkeypatch))
    assert found
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [("max_logprobs", 5), ("policy", "fcfs"), ("speculative_config", {"method": "eagle"})],
)
def test_a_value_that_the_release_has_is_taken(known: Signature, path: str, value: object) -> None:
    assert problem_of_value(known, path, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "is_known"),
    [
        ("quantization", "awq", True),
        ("quantization", "AWQ", True),
        ("quantization", None, True),
        ("quantization", "squeeze", False),
        ("kv_cache_dtype", "fp9", False),
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
