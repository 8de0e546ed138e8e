import pytest

from lmi_backend.options.argument_types import problem_of, unknown_key, unknown_word


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        ("bool", "true False", "maybe 1 None"),
        ("bool | None", "TRUE", "None"),
        ("int", "1 -1", "abc 0.5 3k"),
        ("Optional[int]", "1 None", "abc"),
        ("float", "0.5 1e-3", "x"),
        ("str", "anything", ""),
        ("Union[Literal['a'], str]", "anything", ""),
        ("Literal['fcfs', 'priority']", "fcfs", "FCFS foo"),
        ("Literal['a'] | None", "a None", "b"),
        ("Literal['auto', Literal['a', 'b']]", "auto b", "c"),
        ("list[int]", "1,2 [1,2] 3", "a,b [1,b]"),
        ("list[Literal['model', 'all']] | None", "model,all", "model,x"),
        ("set[str]", "a,b", ""),
        ("dict[str, Any]", "{} {'a':1}", "3 [1] x"),
        ("CompilationConfig", "{'a':1}", "3 x"),
        ("vllm.config.EPLBConfig | None", "None", "x"),
        ("AttentionBackendEnum | None", "FLASH_ATTN", ""),
        ("Literal['a', 'b", "anything", ""),
    ],
)
def test_text_is_judged_as_vllms_command_line_does(kind: str, taken: str, refused: str) -> None:
    for text in taken.split():
        assert problem_of("seed", kind, text.replace("'", '"')) == "", text
    for text in refused.split():
        assert "accepted: " in problem_of("seed", kind, text), text


def test_some_numbers_have_a_letter_behind_them() -> None:
    for text in ("32", "32k", "2.5k", "32K"):
        assert problem_of("max_num_scheduled_tokens", "int | None", text) == ""
    for text in ("0.5", "2.5K", "k"):
        assert problem_of("max_num_scheduled_tokens", "int | None", text)


def test_a_backend_may_be_written_with_hyphens() -> None:
    assert problem_of("moe_backend", "Literal['deep_gemm']", "DEEP-GEMM") == ""
    assert problem_of("all2all_backend", "Literal['deep_gemm']", "deep-gemm")


def test_a_value_is_one_of_the_words() -> None:
    assert unknown_word("Literal[1, 8, 16] | None", 8) == ""
    assert unknown_word("Literal[1, 8, 16]", 10).endswith("accepted: 1, 8, 16")
    assert unknown_word("str", "anything") == unknown_word("Literal['a'] | str", "b") == ""
    assert unknown_word("Literal['cut", "b") == ""


def test_an_object_has_the_keys_of_its_class() -> None:
    assert unknown_key(["mode", "level"], {"mode": 3}) == ""
    assert unknown_key(["mode"], {"mod": 3}).endswith('know, "mod"; did you mean mode?')
    assert unknown_key(["mode"], {"x": 3}).endswith('"x"')


def test_what_is_too_deep_is_no_value() -> None:
    for kind in ("CompilationConfig", "list[int]", "dict[str, Any]"):
        assert "accepted: " in problem_of("x", kind, "[" * 100_000)
        assert kind == "list[int]" or problem_of("x", kind, '{"a":' * 100_000)
