"""The `openai` package."""

import asyncio
import json
import time
from typing import Any

import openai
from cities import City
from results import KEY, MODEL, URL, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)
CHAT: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
ASKED: Any = {"model": MODEL, "messages": CHAT, "temperature": 0}
QUESTION: Any = {"model": MODEL, "input": CHAT, "temperature": 0, "max_output_tokens": 50}
PROMPT = "The capital of Italy is"
IDS = {"X-LMI-Resumable": "1"}
"""Its streams have ids of events, which must change nothing here."""
LONG: Any = {"max_tokens": 900, "extra_body": {"ignore_eos": True}}
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "travel",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}

NAMED: Any = {"type": "function", "function": {"name": "travel"}}


def _message(**more: Any) -> Any:
    return client.chat.completions.create(**ASKED | more).choices[0].message


def _names(message: Any) -> list[str]:
    return [call.function.name for call in message.tool_calls or []]


def _texts(**more: Any) -> list[str]:
    answer = client.completions.create(**{"model": MODEL, "temperature": 0} | more)
    return [choice.text for choice in answer.choices]


def chat() -> Any:
    answer = client.chat.completions.create(**ASKED)
    assert answer.usage is not None
    choice = answer.choices[0]
    return [choice.message.content, choice.finish_reason, answer.usage.completion_tokens]


def chat_streamed() -> Any:
    more: Any = {"stream": True, "stream_options": {"include_usage": True}}
    stream = client.chat.completions.create(**ASKED, **more)
    text, usage, ends = "", [], []
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            ends += [choice.finish_reason] if choice.finish_reason else []
        if chunk.usage:
            usage.append(chunk.usage.completion_tokens)
    return [text, ends, usage]


def chat_stream_helper() -> Any:
    with client.chat.completions.stream(**ASKED) as stream:
        kinds = sorted({event.type for event in stream})
        return [stream.get_final_completion().choices[0].message.content, kinds]


def completion() -> Any:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, n=3, logprobs=2, max_tokens=4, seed=1
    )
    return [
        [choice.index, len(choice.logprobs.tokens) if choice.logprobs else 0]
        for choice in answer.choices
    ]


def completion_streamed() -> Any:
    stream = client.completions.create(model=MODEL, prompt=PROMPT, temperature=0, stream=True)
    return "".join(chunk.choices[0].text for chunk in stream)


def chat_logprobs() -> Any:
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, seed=1, logprobs=True, top_logprobs=2, n=2
    )
    return [
        [len(token.top_logprobs) for token in choice.logprobs.content]
        if choice.logprobs and choice.logprobs.content
        else None
        for choice in answer.choices
    ]


def tool_required() -> Any:
    answer = client.chat.completions.create(**ASKED, tools=[TOOL], tool_choice="required")
    return [answer.choices[0].finish_reason, _names(answer.choices[0].message)]


def tool_streamed() -> Any:
    more: Any = {"tools": [TOOL], "tool_choice": NAMED, "parallel_tool_calls": True}
    stream = client.chat.completions.create(**ASKED, **more, stream=True)
    names = []
    for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or []:
            names += [call.function.name] if call.function and call.function.name else []
    return names


def json_schema() -> Any:
    schema = TOOL["function"]["parameters"]
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return json.loads(_message(response_format=form).content)


def parsed() -> Any:
    answer = client.chat.completions.parse(**ASKED, response_format=City, max_tokens=200)
    return type(answer.choices[0].message.parsed).__name__


def model() -> Any:
    found = client.models.retrieve(MODEL)
    return [found.id, found.object]


def many_at_once() -> Any:
    async def one(async_client: openai.AsyncOpenAI) -> str:
        answer = await async_client.chat.completions.create(**ASKED)
        return answer.choices[0].message.content or ""

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as async_client:
            return await asyncio.gather(*(one(async_client) for _ in range(16)))

    return sorted(set(asyncio.run(all_of_them())))


def async_stream() -> Any:
    async def text() -> str:
        async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as async_client:
            more: Any = {"stream": True, "extra_headers": IDS}
            stream = await async_client.chat.completions.create(**ASKED, **more)
            return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    return asyncio.run(text())


def closed_stream() -> Any:
    """Return when the stream was closed, as the test looks at the engine then."""
    stream = client.completions.create(model=MODEL, prompt="Tell a story:", stream=True, **LONG)
    next(iter(stream))
    stream.close()
    return time.time()


def response() -> Any:
    answer = client.responses.create(**QUESTION | {"input": CHAT[0]["content"]})
    return [answer.output_text, answer.status]


def response_resumed() -> Any:
    """Leave a stream in the middle; return its text, and whether what follows it is all of it."""
    events = []
    for event in client.responses.create(**QUESTION, stream=True, extra_headers=IDS):
        events.append(event)
        if event.type == "response.output_text.delta":
            break
    name = events[0].response.id
    asked: Any = {"response_id": name, "stream": True, "starting_after": events[-1].sequence_number}
    events += client.responses.retrieve(**asked)
    numbers = [event.sequence_number for event in events]
    text = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    state = client.responses.retrieve(name)
    return [text, numbers == list(range(len(events))), events[-1].type, state.output_text]


def response_in_background() -> Any:
    """Return what becomes of one that is polled, of a stream, and of one that is cancelled."""
    found = client.responses.create(**QUESTION, background=True)
    # A short one may be complete before its first answer is written.
    first = [found.status in ("queued", "in_progress", "completed"), found.background]
    while found.status in ("queued", "in_progress"):
        time.sleep(0.1)
        found = client.responses.retrieve(found.id)
    events = list(client.responses.create(**QUESTION, background=True, stream=True))
    after: Any = {"response_id": events[0].response.id, "stream": True, "starting_after": 1}
    rest = list(client.responses.retrieve(**after))
    long = {"max_output_tokens": LONG["max_tokens"], "extra_body": LONG.get("extra_body")}
    begun = client.responses.create(**QUESTION | long, background=True)
    cancelled = client.responses.cancel(begun.id)
    state = client.responses.retrieve(cancelled.id).status
    whole = events[-1].response.output_text
    numbers = [event.sequence_number for event in rest] == list(range(2, len(events)))
    return [*first, found.output_text, found.status, whole, numbers, cancelled.status, state]


def response_streamed() -> Any:
    stream = client.responses.create(**QUESTION, stream=True, extra_headers=IDS)
    text, kinds = "", []
    for event in stream:
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    return [text, kinds[0], kinds[-1]]


def raw_headers() -> Any:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=CHAT)
    return [raw.headers["content-type"], bool(raw.headers.get("x-request-id"))]


CASES = {
    "chat_by_served_name": lambda: _message(model="rome").content,
    "chat_by_adapter": lambda: _texts(model="wrong", prompt="The capital of France is")[0],
    "two_prompts": lambda: _texts(prompt=[PROMPT, "The capital of Japan is"]),
    "tool_named": lambda: _names(_message(tools=[TOOL], tool_choice=NAMED)),
    "tool_none": lambda: _message(tools=[TOOL], tool_choice="none").content,
    "models": lambda: [model.id for model in client.models.list()],
    "unknown_model_retrieved": lambda: client.models.retrieve("none/such").id,
    "unknown_model": lambda: _message(model="none").content,
    "bad_value": lambda: _message(temperature=-1).content,
    "bad_type": lambda: _message(extra_body={"tools": "x"}).content,
    "too_long": lambda: _message(messages=[{"role": "user", "content": "one " * 3000}]).content,
    "embeddings": lambda: client.embeddings.create(model=MODEL, input="a").model,
    "no_key": lambda: client.with_options(api_key="wrong", max_retries=0).models.list().data,
    "unknown_path": lambda: client.post("/nothing", cast_to=object),
}

if __name__ == "__main__":
    run(globals() | CASES)
