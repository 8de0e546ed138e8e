"""The words of the benchmark."""

import argparse

import pytest
from bench import _peer


@pytest.mark.parametrize("text", ["mine", "mine=http:host:1/m", "=openai:host:1/m", "a=triton:h:1"])
def test_a_peer_in_wrong_words_is_explained(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PROTOCOL:HOST:PORT/MODEL"):
        _peer(text)


def test_a_peer_is_named() -> None:
    name, _ = _peer("mine=openai:127.0.0.1:8000/org/model")
    assert name == "mine"
