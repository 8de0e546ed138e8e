"""A stream that fails ends as vLLM's server ends it."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.failed_stream import FailedStream
from lmi_backend.engines.vllm.inside.streamed_chat import FailedOutputError
from lmi_backend.generation import HttpChunk

ROLE = b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n'
ERROR = b'data: {"error": {"message": "broken"}}\n\n'
DONE = b"data: [DONE]\n\n"


class Engine:
    """Raises what vLLM's raises instead of an error that it does not expect."""

    errored = False

    async def generate(self, prompt: str) -> AsyncGenerator[Any, None]:
        """Generate."""
        try:
            yield await self.add_request(prompt)
        except LookupError as error:
            raise RuntimeError("unexpected") from error

    async def add_request(self, prompt: str) -> str:
        """Add a request."""
        return prompt


async def outputs(error: Exception) -> list[Any]:
    found: list[Any] = []
    try:
        async for output in FailedStream(Engine(), error).generate("a"):
            found.append(output)
    except Exception as raised:  # noqa: BLE001  what it is, is looked at
        found.append(raised)
    return found


async def test_errors_come_through_the_engines_own_function() -> None:
    (refused,) = await outputs(ValueError("refused"))
    assert isinstance(refused, ValueError)
    (unexpected,) = await outputs(LookupError("lost"))
    assert isinstance(unexpected, RuntimeError)
    assert isinstance(unexpected.__cause__, LookupError)


async def test_an_output_that_failed_comes_before_the_error() -> None:
    failed = SimpleNamespace(finished=True)
    output, error = await outputs(FailedOutputError(failed))
    assert output is failed
    assert isinstance(error, FailedOutputError)


@pytest.mark.parametrize(
    ("written", "rest"),
    [
        ([ROLE, ERROR, DONE], ERROR + DONE),
        ([ERROR, DONE], ERROR + DONE),
        ([ROLE + ERROR + DONE], ERROR + DONE),
    ],
)
def test_the_rest_begins_with_the_error(written: list[bytes], rest: bytes) -> None:
    stream = FailedStream(Engine(), ValueError())
    for data in written:
        stream.take(HttpChunk(data))
    assert stream.events() == rest
    assert not stream.errored
