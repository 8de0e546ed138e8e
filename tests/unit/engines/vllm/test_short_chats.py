"""Short chats are rendered on the loop, a few a turn, as vLLM renders each."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import chats
from lmi_backend.engines.vllm.bodies import Rendering
from lmi_backend.engines.vllm.chats import MOST_CHARACTERS, MOST_MESSAGES, Messages, ShortChats

GIVEN: Any = ("template",)
NAMED: Any = {"extras": None}


def rendering(*prompts: Any, given: Any = GIVEN) -> Rendering:
    """Return what vLLM's server has given and got."""
    return Rendering(given, NAMED, [*prompts])


RENDERING = rendering()


class Renderer:
    """Has what vLLM's has; its prompts tell what they were made of."""

    def __init__(self) -> None:
        self.calls = 0

    def render_chat(self, chats: list[Messages], *given: Any, **named: Any) -> Any:
        """Return chats and prompts."""
        self.calls += 1
        if any(each[0]["content"] == "refused" for each in chats):
            raise ValueError(chats)
        return chats, [_prompt(each, given, named) for each in chats]


def _prompt(chat: Messages, given: Any, named: Any, arrival: float = 1.0) -> dict[str, Any]:
    texts = [each["content"] for each in chat]
    return {"texts": texts, "given": given, "named": named, "arrival_time": arrival}


def chat(content: str) -> Messages:
    return [{"role": "user", "content": content}]


@pytest.fixture
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture
def short(renderer: Renderer) -> ShortChats:
    return ShortChats(renderer)


async def test_others_have_their_turn_between(short: ShortChats) -> None:
    chats = [asyncio.ensure_future(short.prompt(chat(f"{n}"), RENDERING)) for n in range(8)]
    await chats[0]
    assert not chats[-1].done()
    prompts = await asyncio.gather(*chats)
    assert [each["texts"] for each in prompts] == [[f"{number}"] for number in range(8)]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(chat("a" * (MOST_CHARACTERS + 1)), id="long"),
        pytest.param(chat("a") * (MOST_MESSAGES + 1), id="of many messages"),
    ],
)
async def test_what_takes_long_is_left_to_vllms_thread(
    short: ShortChats, renderer: Renderer, messages: Messages
) -> None:
    assert await short.prompt(messages, RENDERING) is None
    assert not short.makes_same(messages, rendering({}))
    assert not renderer.calls


async def test_one_that_vllm_refuses_harms_no_other(short: ShortChats) -> None:
    chats = [short.prompt(chat(each), RENDERING) for each in ("a", "refused", "b")]
    first, refused, last = await asyncio.gather(*chats, return_exceptions=True)
    assert isinstance(refused, ValueError)
    assert [first["texts"], last["texts"]] == [["a"], ["b"]]  # type: ignore[index]


async def test_one_whose_client_has_left_is_not_rendered(
    short: ShortChats, renderer: Renderer
) -> None:
    chats = [asyncio.ensure_future(short.prompt(chat(each), RENDERING)) for each in ("a", "b")]
    await asyncio.sleep(0)
    chats[0].cancel()
    assert (await chats[1])["texts"] == ["b"]
    assert renderer.calls == 1


def test_a_prompt_is_the_same_but_for_its_time(short: ShortChats) -> None:
    theirs = _prompt(chat("a"), GIVEN, NAMED, 2.0)
    assert short.makes_same(chat("a"), rendering(theirs))
    assert not short.makes_same(chat("b"), rendering(theirs))


def test_a_template_that_takes_long_is_left_to_vllms_thread(
    short: ShortChats, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = rendering(_prompt(chat("a"), GIVEN, NAMED))
    assert short.makes_same(chat("a"), theirs)
    monkeypatch.setattr(chats, "_MOST_SECONDS", -1.0)
    assert not short.makes_same(chat("a"), theirs)


async def _coroutine(*_: Any, **__: Any) -> Any:
    """Return what is awaited."""


@pytest.mark.parametrize(
    ("renderer", "text", "prompts"),
    [
        (Renderer(), "a", []),
        (Renderer(), "refused", [{}]),
        (SimpleNamespace(), "a", [_prompt(chat("a"), GIVEN, NAMED)]),
        (SimpleNamespace(render_chat=_coroutine), "a", [_prompt(chat("a"), GIVEN, NAMED)]),
    ],
)
def test_what_fails_here_is_left_to_vllms_thread(renderer: Any, text: str, prompts: Any) -> None:
    assert not ShortChats(renderer).makes_same(chat(text), rendering(*prompts))


@pytest.mark.parametrize("made", [None, (), ([], []), 5])
async def test_what_gives_something_else_is_left(made: Any) -> None:
    short = ShortChats(SimpleNamespace(render_chat=lambda *_, **__: made))
    with pytest.raises((TypeError, ValueError)):
        await short.prompt(chat("a"), RENDERING)
    assert not short.makes_same(chat("a"), rendering({}))
