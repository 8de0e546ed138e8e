"""OpenAI's and Anthropic's bodies, as the echo answers them."""

import pytest

from lmi_backend.engines.echo import AnthropicBody
from lmi_backend.generation import Delta


def _kinds(data: bytes) -> list[str]:
    return [line[7:] for line in data.decode().splitlines() if line.startswith("event: ")]


@pytest.mark.parametrize("num_tokens", [0, 1], ids=["written again", "new"])
def test_a_message_begins_before_its_first_word_and_ends_once(num_tokens: int) -> None:
    """A stream that resumes drops as many events as its client has: all must be there again."""
    body = AnthropicBody(model="a", stream=True)
    first, second = (body.event("id", Delta(" a", num_tokens), count) for count in (1, 2))
    assert _kinds(first) == ["message_start", "content_block_start", "content_block_delta"]
    assert _kinds(second) == ["content_block_delta"]
    end = body.end("id", Delta(finish_reason="length"), 2)
    assert _kinds(end) == ["content_block_stop", "message_delta", "message_stop"]
    assert b'"stop_reason":"max_tokens"' in end


def test_a_message_without_text_is_whole() -> None:
    end = AnthropicBody(stream=True).end("id", Delta(finish_reason="stop"), 0)
    assert _kinds(end)[:3] == ["message_start", "content_block_start", "content_block_stop"]
    assert b'"stop_reason":"end_turn"' in end
