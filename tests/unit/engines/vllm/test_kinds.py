"""Which bodies are of one kind."""

import json
from typing import Any

import pytest

from lmi_backend.engines.bodies import members_of
from lmi_backend.engines.vllm import bodies
from lmi_backend.engines.vllm.bodies import BodyKind, Kinds

BODY: dict[str, Any] = {"model": "m", "stream": True, "max_tokens": 5, "messages": [1]}


def of(
    found: Kinds, path: str = "/v1/chat/completions", *, has_id: bool = False, **more: Any
) -> BodyKind:
    members = members_of(json.dumps(BODY | more).encode())
    assert members is not None
    return found.of(path, members, has_id=has_id)


@pytest.mark.parametrize(
    "more", [{"messages": []}, {"max_tokens": 6}, {"user": "u", "prompt": "p"}]
)
def test_bodies_that_differ_in_prompt_limit_and_user_are_of_one_kind(more: Any) -> None:
    found = Kinds()
    first = of(found, user="other", prompt="")
    assert of(found, **{"user": "x", "prompt": ""} | more) is first


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": None}, {"max_completion_tokens": 5}, {"temperature": 0}, {"model": "n"},
        {"has_id": True}, {"path": "/v1/completions"},
        # Above and below the size from which a digest stands for a member.
        {"stop": "a"}, {"tools": ["a" * 999]}, {"tools": ["a" * 998 + "b"]},
    ],
)  # fmt: skip
def test_each_other_value_is_another_kind(more: dict[str, Any]) -> None:
    found = Kinds()
    first, tools = of(found), of(found, tools=["b" * 999])
    other = of(found, **more)
    assert other not in (first, tools)
    assert of(found, **more) is other


def test_nothing_large_is_kept_of_a_body() -> None:
    key = bodies.key_of("tools", b"a" * 99_999)
    assert isinstance(key, bytes)
    assert len(key) < 1000


def test_few_kinds_are_kept_those_that_came_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_MOST_KINDS", 3)
    found = Kinds()
    first, second = of(found), of(found, seed=0)
    for seed in (1, 2):
        of(found, seed=seed)
        assert of(found) is first
    assert of(found, seed=0) is not second
