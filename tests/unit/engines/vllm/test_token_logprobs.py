"""Log probabilities read past vLLM's processor are those that it would have made."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import answers, names
from lmi_backend.engines.vllm.answers import TokenLogprobs
from tests.unit.engines.vllm.vllm_engine import decoded
from tests.unit.engines.vllm.vllm_parts import (
    LogprobsProcessor,
    Output,
    Params,
    Request,
    Tokenizer,
    lists,
)

pytestmark = pytest.mark.usefixtures("vllm")

STEPS = [[65], [2], [3, 66], [2, 3], [6], [1, 2], [3]]
"""Letters in two halves, in one step and in two, and a token without a text."""


def both(tokenizer: Any = None, **params: Any) -> tuple[TokenLogprobs, LogprobsProcessor]:
    request = Request("a", sampling_params=Params(**params))
    ours = TokenLogprobs.of(tokenizer, request)
    assert ours is not None
    return ours, LogprobsProcessor.from_new_request(tokenizer, request)


def plain(position: Any, token: int) -> list[Any]:
    if type(position) is tuple:
        return [(token, *position)]
    return [(number, *each[:3]) for number, each in position.items()]


@pytest.mark.parametrize("tokenizer", [Tokenizer(), None])
@pytest.mark.parametrize("width", [0, 1, 3, 64])
@pytest.mark.parametrize("candidates", [(1, 66, 67), (1, 2, 67), (65, 1, 3)])
def test_they_are_those_of_vllms_processor(
    width: int, candidates: tuple[int, ...], tokenizer: Any
) -> None:
    """Candidates may be halves of letters, whose text hangs on what came before."""
    ours, theirs = both(tokenizer, logprobs=width)
    tokens, found = [], []
    for ids in STEPS:
        output = Output("a", ids, lists(ids, *candidates))
        ours.read(output, ids)
        theirs.update_from_output(output)
        positions, total = ours.taken()
        assert positions is not None
        assert len(positions) == len(ids)
        assert total == theirs.cumulative_logprob
        tokens += ids
        found += positions
    assert [plain(*each) for each in zip(found, tokens, strict=True)] == [
        plain(*each) for each in zip(theirs.logprobs, tokens, strict=True)
    ]


def test_a_text_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def decode(tokenizer: Any, ids: list[int]) -> list[str]:
        asked.extend(ids)
        return decoded(tokenizer, ids)

    module = SimpleNamespace(convert_ids_list_to_tokens=decode)
    monkeypatch.setitem(vars(names), "logprobs", module)
    monkeypatch.setattr(answers, "_MOST_TEXTS", 2)
    for _ in range(2):
        ours, _ = both(Tokenizer(), logprobs=1)
        ours.read(Output("a", [65, 66], lists([65, 66], 1)), [65, 66])
        assert ours.taken()[0] is not None
    # Of a third token nothing is kept: a vocabulary may be another's.
    assert asked == [65, 1, 66, 66]


@pytest.mark.parametrize(
    "params", [{"logprobs": -1}, {"logprobs": 65}, {"logprobs": 0, "flat_logprobs": True}]
)
def test_other_wishes_are_vllms(params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "logprobs", None)
    ours, theirs = both(Tokenizer(), **params)
    output = Output("a", [65], lists([65], 1))
    ours.read(output, [65])
    theirs.update_from_output(output)
    assert ours.taken()[0] == theirs.logprobs


def test_another_token_than_the_generated_one_is_vllms() -> None:
    ours, _ = both(Tokenizer(), logprobs=0)
    ours.read(Output("a", [66], lists([65])), [66])
    positions, _ = ours.taken()
    assert positions is not None
    (position,) = positions
    assert type(position) is dict
    assert [*position] == [65]


def test_the_text_of_a_half_is_found_after_tokens_of_another_engine() -> None:
    ours, theirs = both(Tokenizer(), logprobs=0)
    ours.know([65, 2], -7.0)
    theirs.update_from_output(Output("a", [65, 2], lists([65, 2])))
    output = Output("a", [3], lists([3]))
    ours.read(output, [3])
    theirs.update_from_output(output)
    found, total = ours.taken()
    assert found == theirs.logprobs[2:]
    assert total == -7.0 + theirs.logprobs[-1][3].logprob


def test_who_wants_none_has_no_reader() -> None:
    assert TokenLogprobs.of(None, Request("a")) is None
    ours, _ = both(None, prompt_logprobs=0)
    ours.read(Output("a", [65]), [65])
    assert ours.taken() == (None, None)
    assert ours.of_prompt() == [None]
