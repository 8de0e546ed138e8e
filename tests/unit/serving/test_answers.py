"""How many answers bodies ask for."""

import pytest

from lmi_backend.generation import HttpRequest
from lmi_backend.serving.answers import answers_wanted

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


def test_other_bodies_count_as_one() -> None:
    assert answers_wanted(HttpRequest("/v1/embeddings", b'{"input": ["a", "b"], "n": 3}')) == 1
