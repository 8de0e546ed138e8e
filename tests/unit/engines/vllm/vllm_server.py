"""Doubles of the parts of vLLM's server that write streams, with its signatures and its words."""

import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

from lmi_backend.engines.vllm.layouts import CHAT_DELTA, CHAT_TEXT, DONE, Sample, StreamLayouts
from tests.unit.engines.vllm.vllm_parts import DeltaMessage, Tokenizer

STREAM = {"id": "chatcmpl-1", "created": 1}


def event(value: Any) -> str:
    """Return an event as vLLM's server writes it."""
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


def chat_event(stream: Any, delta: Any, reason: Any = None, stop: Any = None) -> str:
    """Return an event of a chat."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    choice |= {"stop_reason": stop} if reason else {}
    return event(stream | {"object": "chat.completion.chunk", "model": "lmi", "choices": [choice]})


def usage_event(stream: Any, prompt: int, completion: int, reasoning: int | None = None) -> str:
    """Return the event of a stream's counts."""
    counts: dict[str, Any] = {
        "prompt_tokens": prompt, "total_tokens": prompt + completion,
        "completion_tokens": completion,
    }  # fmt: skip
    if reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return event(stream | {"object": "x", "model": "lmi", "choices": [], "usage": counts})


def read_events(data: bytes) -> list[Any]:
    """Return what events tell, without their ids and times."""
    *found, end = data.split(b"\n\n")
    assert end == b""
    values = [
        each if each + b"\n\n" == DONE else json.loads(each.removeprefix(b"data: "))
        for each in found
    ]
    return [
        {name: each[name] for name in each if name not in STREAM} if type(each) is dict else each
        for each in values
    ]


class Parser:
    """Tells "<" as nothing yet, "$" as a call, and the rest as content."""

    def __init__(self) -> None:
        self._held = ""

    def parse_delta(
        self,
        delta_text: str,
        delta_token_ids: list[int],
        request: Any,
        prompt_token_ids: Any = None,
        *,
        finished: bool,
    ) -> DeltaMessage | None:
        text, self._held = self._held + delta_text, ""
        if text == "broken":
            raise ValueError("no such text")
        if text.endswith("<") and not finished:
            self._held = text
            return None
        if "$" in text:
            return DeltaMessage(content=None, tool_calls=[{"function": {"name": text}}])
        return DeltaMessage(content=text) if text else None

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        return 0


def body(**members: Any) -> Any:
    """Return a chat as vLLM has read it."""
    usual = {"tools": None, "parallel_tool_calls": True, "tool_choice": None, "messages": []}
    return Body(**usual | members)


class Body(SimpleNamespace):
    """What `body` returns."""

    def model_copy(self, update: dict[str, Any]) -> "Body":
        return Body(**vars(self) | update)


class OpenAIServingChat:
    """As vLLM's."""

    parser_cls: Any = None
    request_logger = None

    def __init__(self) -> None:
        self.renderer: Any = SimpleNamespace(tokenizer=Tokenizer())
        self.default_sampling_params: dict[str, Any] = {}
        self.num_written = 0
        """Outputs that it has written events of itself."""

    def create_streaming_error_response(self, error: Exception) -> str:
        return json.dumps({"error": {"message": f"{type(error).__name__}: {error}", "code": 400}})

    def _make_parser(self, request: Any, tokenizer: Any, chat_template_kwargs: Any) -> Any:
        return self.parser_cls()

    async def chat_completion_stream_generator(  # noqa: PLR0917  as vLLM's
        self, request: Any, result_generator: AsyncIterator[Any], request_id: str, model_name: str,
        conversation: Any, tokenizer: Any, request_metadata: Any, chat_template_kwargs: Any = None,
    ) -> AsyncIterator[str]:  # fmt: skip
        stream = STREAM | {"id": request_id}
        parser = self.parser_cls and self._make_parser(request, tokenizer, chat_template_kwargs)
        is_begun = has_calls = False
        try:
            async for result in result_generator:
                self.num_written += result.request_id != "sample"
                if not is_begun:
                    is_begun = True
                    yield chat_event(stream, {"role": "assistant", "content": ""})
                (output,) = result.outputs
                if output.finish_reason == "error":
                    raise RuntimeError("Internal server error")  # noqa: TRY301  as vLLM's
                reason, delta = output.finish_reason, DeltaMessage(content=output.text)
                if parser:
                    delta = parser.parse_delta(
                        output.text, output.token_ids, request, None, finished=reason is not None
                    )
                    if delta is None and reason is None:
                        continue
                    delta = delta or DeltaMessage()
                    has_calls = has_calls or bool(delta.tool_calls)
                reason = "tool_calls" if reason == "stop" and has_calls else reason
                value = json.loads(delta.model_dump_json(exclude_unset=True))
                yield chat_event(stream, value, reason, output.stop_reason)
        except Exception as error:  # noqa: BLE001  as vLLM's
            yield f"data: {self.create_streaming_error_response(error)}\n\n"
        yield DONE.decode()


SAMPLES = (Sample("a", None), Sample("b", None), Sample("c", "stop"))


def layouts(*, has_parser: bool = False) -> StreamLayouts:
    """Return the layouts of chats."""
    found = StreamLayouts.of(
        [
            chat_event(STREAM, {"role": "assistant", "content": ""}).encode(),
            *(chat_event(STREAM, {"content": each[0]}, each[1]).encode() for each in SAMPLES),
            usage_event(STREAM, 11, 3, 0 if has_parser else None).encode(),
            DONE,
        ],
        SAMPLES,
        (11, 3),
        CHAT_DELTA if has_parser else CHAT_TEXT,
    )
    assert found is not None
    return found
