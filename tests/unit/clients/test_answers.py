"""How many answers bodies ask for."""

import pytest

from lmi_backend.clients.answers import MANY, answers_wanted
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest

_CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        ('{"prompt": "a"}', 1),
        ('{"prompt": "a", "n": 3}', 3),
        ('{"prompt": ["a", "b"], "n": 3}', 6),
        ('{"prompt": [1, 2, 3], "n": 2}', 2),
        ('{"prompt": [[1, 2], [3]], "n": 2}', 4),
        ('{"prompt": [ [1], "b"], "n": null}', 2),
        ('{"prompt_embeds": ["eA==", "eA=="]}', 2),
        ('{"messages": [{"role": "user", "content": "a"}], "n": 5}', 5),
        # As pydantic reads them.
        ('{"prompt": "a", "n": "4"}', 4),
        ('{"prompt": "a", "n": 4.0}', 4),
        ('{"prompt": ["a", "b"], "n": 4, "x": NaN}', 8),
        ('{"prompt": "a", "n": 4, "n": 100000000000000000000}', 100000000000000000000),
        ('{"prompt": ["a"], "n": 0}', 1),
        ('{"prompt": [], "n": -1}', 1),
        ('{"prompt": "a", "n": "many"}', 1),
        ('{"prompt": ["a", "b"], "n": Infinity}', 1),
        ('{"prompt": "a", "n": [2]}', 1),
        ('"n"', 1),
        ("no JSON", 1),
        ("[1]", 1),
        ("[" * 100_000, 1),
    ],
)
def test_a_body_counts_as_the_answers_it_asks_for(body: str, answers: int) -> None:
    for path in ("/v1/completions", _CHAT):
        assert answers_wanted(HttpRequest(path, body.encode())) == answers


LARGE = "a" * 300_000


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (f'{{"prompt": "{LARGE}", "n": 3}}', 3),
        (f'{{"prompt": ["{LARGE}", "b", [1]], "n": 2}}', 6),
        (f'{{"prompt": [[1], "{LARGE}"]}}', 2),
        ('{"prompt": [' + "1, " * 100_000 + "1]}", 1),
        ('{"prompt": [' + '"", ' * 200_000 + '""]}', MANY + 1),
        ('{"prompt": [' + "[], " * 2_000 + f'"{LARGE}"]' + "}", 2_001),
        (f'{{"prompt": null, "x": "{LARGE}"}}', 1),
    ],
)
def test_a_large_body_counts_without_being_taken_apart(body: str, answers: int) -> None:
    assert answers_wanted(HttpRequest("/v1/completions", body.encode())) == answers


@pytest.mark.parametrize("rest", ['"n": NaN', '"n": 1', "oops"])
def test_a_large_body_that_is_no_json_is_refused(rest: str) -> None:
    body = f'{{"prompt": [{"1, " * 300_000} 1], "y": Infinity, {rest}}}'.encode()
    with pytest.raises(RequestError, match=r"the body of \d+ bytes.* is no JSON.*accepted"):
        answers_wanted(HttpRequest("/v1/completions", body))


def test_a_long_text_does_not_make_it_large() -> None:
    body = f'{{"prompt": ["{LARGE}", "b"], "y": Infinity, "n": 2}}'.encode()
    assert answers_wanted(HttpRequest("/v1/completions", body)) == 4


def test_other_bodies_count_as_one() -> None:
    assert answers_wanted(HttpRequest("/v1/embeddings", b'{"input": ["a", "b"], "n": 3}')) == 1
