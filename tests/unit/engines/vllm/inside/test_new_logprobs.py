"""Log probabilities are read past vLLM where each candidate has a text of its own."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import names
from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs
from lmi_backend.engines.vllm.inside.token_texts import TokenTexts


class Array:
    """An array of numpy's, as far as it matters here."""

    def __init__(self, *rows: Any) -> None:
        self._rows = [*rows]

    def __len__(self) -> int:
        return len(self._rows)

    def tolist(self) -> list[Any]:
        return self._rows


TEXTS = {1: "a", 2: "b", 3: "\ufffd", 4: "d"}


def lists(ids: Any, values: Any, ranks: Any) -> Any:
    return SimpleNamespace(logprob_token_ids=ids, logprobs=values, sampled_token_ranks=ranks)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Any:
    texts = SimpleNamespace(convert_ids_list_to_tokens=lambda _, ids: [TEXTS[each] for each in ids])
    monkeypatch.setitem(vars(names), "logprobs", texts)
    return SimpleNamespace(
        logprobs=[], cumulative_logprob=0.0, num_logprobs=1, tokenizer=SimpleNamespace()
    )


def reader(processor: Any) -> NewLogprobs | None:
    return NewLogprobs.of(SimpleNamespace(logprobs_processor=processor))


def test_candidates_are_as_many_as_are_wanted(processor: Any) -> None:
    found = reader(processor)
    assert found is not None
    # The third candidate is for another request of the batch.
    given = lists(Array([1, 2, 3], [4, 4, 3]), Array([-1.0, -0.5, -2.0], [-0.25] * 3), Array(2, 1))
    assert found.read([1, 4], given) == [
        {1: (-1.0, 2, "a"), 2: (-0.5, 1, "b")},
        {4: (-0.25, 1, "d")},
    ]
    assert found.cumulative == -1.25
    # What vLLM looks back at.
    assert [next(iter(each)) for each in processor.logprobs] == [1, 4]


def test_where_none_but_the_token_is_wanted_its_text_is_looked_up(
    processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def decode(_: Any, ids: list[int]) -> list[str]:
        asked.extend(ids)
        return [TEXTS[each] for each in ids]

    texts = TokenTexts(decode, vocabulary=5)
    monkeypatch.setitem(vars(names), "logprobs", SimpleNamespace(convert_ids_list_to_tokens=texts))
    processor.num_logprobs = 0
    texts(processor.tokenizer, [1])
    asked.clear()
    found = reader(processor)
    assert found is not None
    # The second candidates are for another request of the batch.
    given = lists(Array([1, 3], [2, 3]), Array([-1.0, -0.5], [-0.25] * 2), Array(2, 1))
    for _ in range(2):
        assert found.read([1, 2], given) == [(-1.0, 2, "a"), (-0.25, 1, "b")]
    assert asked == [2, 2]
    assert found.read([3], lists(Array([3]), Array([-1.0]), Array(1))) is None
    assert found.read([1], lists(Array([2]), Array([-1.0]), Array(1))) is None
    assert found.cumulative == -2.5
    # A tokenizer of another request has other texts.
    processor.tokenizer = SimpleNamespace()
    other = reader(processor)
    assert other is not None
    assert other.read([1], lists(Array([1]), Array([-1.0]), Array(1))) == [(-1.0, 1, "a")]
    assert asked[-1] == 1


@pytest.mark.parametrize(
    ("ids", "given"),
    [
        ([3], lists(Array([3, 1]), Array([-1.0, -1.0]), Array(1))),
        ([1], lists(Array([1, 3]), Array([-1.0, -1.0]), Array(1))),
        ([2], lists(Array([1, 2]), Array([-1.0, -1.0]), Array(1))),
        ([1, 2], lists(Array([1, 2]), Array([-1.0, -1.0]), Array(1))),
        ([1], lists([[1, 2]], [[-1.0, -1.0]], [1])),
        ([1], None),
    ],
    ids=["a part of a character", "a candidate that is one", "another token", "fewer", "lists", ""],
)
def test_what_is_otherwise_is_vllms_and_not_noted(
    processor: Any, ids: list[int], given: Any
) -> None:
    found = reader(processor)
    assert found is not None
    assert found.read(ids, given) is None
    assert (processor.logprobs, found.cumulative) == ([], 0.0)


@pytest.mark.parametrize(
    "other",
    [
        {"logprobs": ()}, {"num_logprobs": -1}, {"num_logprobs": None}, {"tokenizer": None},
        {"cumulative_logprob": None},
    ],
)  # fmt: skip
def test_a_processor_of_another_kind_is_left_alone(processor: Any, other: Any) -> None:
    vars(processor).update(other)
    assert reader(processor) is None
    assert NewLogprobs.of(SimpleNamespace()) is None
