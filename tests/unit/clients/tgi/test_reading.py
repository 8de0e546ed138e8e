"""Bodies of Text Generation Inference."""

import pytest

from lmi_backend.clients.tgi.reading import read_either, read_stream, read_whole
from lmi_backend.engine_config import Context
from lmi_backend.errors import RequestError


@pytest.mark.parametrize("read", [read_whole, read_stream, read_either])
@pytest.mark.parametrize(
    ("name", "asked", "nothing"),
    [
        ("typical_p", 0.9, 1.0),
        ("watermark", True, False),
    ],
)
def test_what_its_server_serves_and_nothing_here_does_is_refused(
    read: object, name: str, asked: object, nothing: object
) -> None:
    with pytest.raises(RequestError) as refusal:
        read({"inputs": "a", "parameters": {name: asked}}, Context())  # type: ignore[operator]
    assert refusal.value.field == name
    assert read({"inputs": "a", "parameters": {name: nothing}}, Context()).dropped == ()  # type: ignore[operator]


@pytest.mark.parametrize("read", [read_whole, read_stream, read_either])
@pytest.mark.parametrize(
    ("name", "asked", "nothing"),
    [
        ("no_repeat_ngram_size", 3, 0),
        ("max_time", 0.5, None),
        ("suppress_tokens", [5], []),
        ("guidance_scale", 1.5, 1),
    ],
)
def test_what_other_servers_serve_is_refused_too(
    read: object, name: str, asked: object, nothing: object
) -> None:
    with pytest.raises(RequestError) as refusal:
        read({"inputs": "a", "parameters": {name: asked}}, Context())  # type: ignore[operator]
    assert (refusal.value.field, "accepted: " in str(refusal.value)) == (name, True)
    read({"inputs": "a", "parameters": {name: nothing}}, Context())  # type: ignore[operator]


@pytest.mark.parametrize("name", ["grammar", "max_new_tokens", "adapter_id", "seed"])
def test_a_parameter_outside_of_the_parameters_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"accepted: parameters.{name}") as refusal:
        read_whole({"inputs": "a", name: 1}, Context())
    assert refusal.value.field == name
    assert read_whole({"inputs": "a", "model": "x", name: None}, Context()).dropped == ()


@pytest.mark.parametrize("name", ["max_tokens", "n_predict", "max_output_tokens"])
def test_another_name_of_the_limit_is_the_limit(name: str) -> None:
    read = read_whole({"inputs": "a", "parameters": {name: 3}}, Context())
    assert read.work[0].sampling.max_tokens == 3  # type: ignore[index]


@pytest.mark.parametrize("name", ["messages", "prompt", "tools", "tool_choice"])
def test_a_member_of_another_body_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="accepted: /v1/chat/completions") as refusal:
        read_whole({"inputs": "a", name: ["x"]}, Context())
    assert refusal.value.field == name


def test_a_stream_is_wanted_or_not() -> None:
    with pytest.raises(RequestError, match="is not true or false"):
        read_either({"inputs": "a", "stream": "false"}, Context())


@pytest.mark.parametrize("name", ["maxNewTokens", "max-new-tokens", "MAX_NEW_TOKENS"])
def test_another_spelling_of_a_parameter_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="accepted: max_new_tokens") as refusal:
        read_whole({"inputs": "a", "parameters": {name: 1}}, Context())
    assert refusal.value.field == name
