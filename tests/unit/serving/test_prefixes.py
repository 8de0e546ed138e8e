"""What is the same of two prompts, and what a worker is thought to know of one."""

import pytest

from lmi_backend.serving import prefixes
from lmi_backend.serving.prefixes import PrefixTable, Prompt, bytes_of, prompt_of


def known(table: PrefixTable, prompt: Prompt) -> int:
    """Return how many bytes of a prompt are known."""
    count = table.count(prompt.keys)
    return bytes_of(prompt.keys[count - 1]) if count else 0


def read(table: PrefixTable, prompt: Prompt, most: int = 0) -> int:
    return table.add(prompt, table.count(prompt.keys), most)


def chat(*sizes: int) -> Prompt:
    pieces = [b"{%d" % place + b"a" * (size - 2) for place, size in enumerate(sizes)]
    return prompt_of(pieces, sum(sizes))


def test_each_message_ends_a_beginning() -> None:
    assert [bytes_of(key) for key in chat(100, 300, 70).keys] == [100, 400, 470]


def test_what_is_shorter_than_a_block_of_a_cache_is_no_beginning() -> None:
    assert [bytes_of(key) for key in chat(20, 20, 30).keys] == [70]


def test_a_long_message_and_a_text_have_beginnings_inside() -> None:
    assert [bytes_of(key) for key in chat(100, 2500, 50).keys] == [100, 1124, 2148, 2600, 2650]
    text = prompt_of([b"a" * 3500], 3500)
    assert [bytes_of(key) for key in text.keys] == [*range(256, 2049, 256), 3072, 3500]
    assert len(prompt_of([b"a" * (8 << 20)], 8 << 20).keys) < 1.1 * prefixes.MOST_WORKERS


def test_it_is_known_as_far_as_another_began_so() -> None:
    table = PrefixTable()
    read(table, chat(100, 300, 200))
    assert known(table, chat(100, 300, 200)) == 600
    assert known(table, chat(100, 300, 200, 90)) == 600
    assert known(table, chat(100, 300, 90)) == 400
    assert known(table, chat(90, 300, 200)) == 0
    assert known(table, prompt_of([], 9)) == 0


@pytest.mark.parametrize("salt", [0, 7])
def test_prompts_that_an_engine_keeps_apart_have_nothing_in_common(salt: int) -> None:
    table = PrefixTable()
    read(table, prompt_of([b"{" + b"a" * 99], 100))
    assert known(table, prompt_of([b"{" + b"a" * 99], 100, salt=salt)) == (0 if salt else 100)


def test_a_session_is_known_after_its_first_request() -> None:
    table = PrefixTable()
    prompt = prompt_of([b"short"], 5, "s")
    assert prompt.session not in table
    read(table, prompt)
    assert prompt.session in table
    assert prompt_of([b"other"], 5, "t").session not in table


def test_no_more_is_known_than_an_engine_keeps_and_the_oldest_goes_first() -> None:
    table = PrefixTable()
    prompts = [prompt_of([b"{%09d" % number * 10], 100) for number in range(10)]
    for prompt in (*prompts[:8], prompts[0], prompts[8]):
        read(table, prompt, 8)
    assert [known(table, each) > 0 for each in prompts] == [True, *[False] * 6, True, True, False]


def test_what_is_lost_takes_with_it_what_was_used_before() -> None:
    table = PrefixTable()
    first, second, third = (prompt_of([b"{%09d" % number * 10], 100) for number in range(3))
    for prompt in (first, second, third):
        assert read(table, prompt) == 0
    lost = read(table, second)
    table.drop(lost)
    assert [known(table, each) for each in (first, second, third)] == [0, 100, 100]
