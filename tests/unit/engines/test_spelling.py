"""Members that are spelt with capitals or hyphens are refused by the name that is read."""

import json

import pytest

from lmi_backend.clients.parameters import DroppedParameters
from lmi_backend.engines import bodies
from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError

CHATS = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("maxTokens", "max_tokens"),
        ("maxOutputTokens", "max_output_tokens"),
        ("stopSequences", "stop_sequences"),
        ("topK", "top_k"),
        ("responseFormat", "response_format"),
        ("guidedChoice", "guided_choice"),
        ("guided-choice", "guided_choice"),
        ("GUIDED_CHOICE", "guided_choice"),
        ("generationConfig", "nothing"),
        ("toolConfig", "nothing"),
        ("Temperature", "temperature"),
    ],
)
@pytest.mark.parametrize("more", ["", ', "seed": 1e999'])
def test_another_spelling_is_refused(name: str, accepted: str, more: str) -> None:
    with pytest.raises(RequestError) as refusal:
        check_body(f'{{"{name}": 1{more}}}'.encode(), BodyBounds(), CHATS)
    assert refusal.value.field == name
    assert f"accepted: {accepted}" in str(refusal.value)


@pytest.mark.parametrize(
    "name",
    ["x-irid", "max_tokens", "promptCacheKey", "serviceTier", "user", "1", "", "ÄÖ", "extraBody2"],
)
def test_other_names_stay(name: str) -> None:
    body = json.dumps({name: 1}).encode()
    assert check_body(body, BodyBounds(), CHATS).data == body


def test_names_that_nothing_reads_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bodies, "DROPPED", DroppedParameters())
    body = dict.fromkeys(("temprature", "top_kk", "user", "metadata"), "a")
    check_body(json.dumps(body).encode(), BodyBounds(reads={CHATS: {"user"}}), CHATS)
    assert [name for name in body if name in caplog.text] == ["temprature", "top_kk"]
