"""Requests for an OpenAI server, made by seed: right ones, and wrong ones of every kind."""

import json
import random
from collections.abc import Iterator
from typing import Any

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 6}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 5}, "size": {"enum": [1, 2]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
}
PROMPTS = (
    "The capital of France is", "The capital of Egypt is", "Two plus three is",
    "Three plus four is",
    "The second city of France is", "née à Zürich — 東京 🗼", "0 1 2 3 4 5", 'Say "x": {"a":"b"}\n',
)  # fmt: skip
BOTH: tuple[dict[str, Any], ...] = (
    {"n": 2}, {"n": 3}, {"stop": "."}, {"stop": ["a", "the "]}, {"stop": []}, {"seed": 7},
    {"stop": ["e"], "include_stop_str_in_output": True}, {"ignore_eos": True}, {"min_tokens": 3},
    {"presence_penalty": 0.5, "frequency_penalty": -0.5}, {"repetition_penalty": 1.2},
    {"logit_bias": {"70": 100}}, {"logit_bias": {}}, {"top_p": 0.9, "top_k": 5}, {"min_p": 0.1},
    {"skip_special_tokens": False}, {"spaces_between_special_tokens": False}, {"user": "née"},
    {"stop_token_ids": [70, 71]}, {"bad_words": [" Paris"]}, {"allowed_token_ids": [70, 71, 72]},
    {"return_token_ids": True}, {"return_tokens_as_token_ids": True}, {"priority": 0},
    {"structured_outputs": {"choice": ["yes", "no"]}}, {"prompt_logprobs": 1},
    {"structured_outputs": {"regex": "[ab]{2}"}}, {"response_format": {"type": "text"}},
    {"structured_outputs": {"json": SCHEMA}}, {"request_id": "own"}, {"truncate_prompt_tokens": 4},
    {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, {"stop": None, "n": None},
    {"max_tokens": 1}, {"cache_salt": "salt"}, {"unknown_member": 1}, {"add_special_tokens": False},
    {"response_format": {"type": "json_object"}}, {"kv_transfer_params": None}, {"best_of": 1},
    {"temperature": 0, "top_p": 1, "seed": None}, {"max_tokens": None, "stop": ["\n"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
)  # fmt: skip
OF_CHATS: tuple[dict[str, Any], ...] = (
    {"logprobs": True}, {"logprobs": True, "top_logprobs": 3}, {"logprobs": False},
    {"logprobs": True, "top_logprobs": 0}, {"max_completion_tokens": 3}, {"tools": []},
    {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto"},
    {"tools": [TOOL], "tool_choice": "none"}, {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    {"tools": [TOOL], "parallel_tool_calls": False}, {"echo": True}, {"tools": None},
    {"add_generation_prompt": False}, {"chat_template_kwargs": {"a": 1}},
    {"add_generation_prompt": False, "continue_final_message": True}, {"documents": []},
    {"reasoning_effort": "low"}, {"include_reasoning": False}, {"store": False},
)  # fmt: skip
OF_COMPLETIONS: tuple[dict[str, Any], ...] = (
    {"logprobs": 0}, {"logprobs": 1}, {"logprobs": 3}, {"echo": True}, {"suffix": None},
    {"echo": True, "max_tokens": 0}, {"prompt": ["The capital of France is", "Two plus three is"]},
    {"prompt": [1, 70, 80, 90]}, {"prompt": [[1, 70, 80], [1, 90]]}, {"max_tokens": 0},
    {"prompt": ["Two plus two is"], "n": 2}, {"logprobs": None}, {"prompt": ["a"] * 4},
)  # fmt: skip
MESSAGES: tuple[list[Any], ...] = (
    [{"role": "user", "content": "The capital of France is"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two plus two is"}],
    [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": [{"type": "text", "text": "Two plus"}]}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ],
    [
        {"role": "user", "content": "Hi", "name": "someone"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "The capital of Italy is"},
    ],
    [{"role": "user", "content": ""}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "Three plus"}, {"role": "assistant", "content": "Three plus"}],
)
WRONG: tuple[dict[str, Any], ...] = (
    {"model": "nobody"}, {"model": 1}, {"temperature": -1}, {"temperature": "hot"}, {"top_p": 2},
    {"top_p": 0}, {"top_k": -3}, {"min_p": 2}, {"n": 0}, {"n": -1}, {"n": 1.5}, {"n": "two"},
    {"max_tokens": -1}, {"max_tokens": 100_000}, {"max_tokens": "few"}, {"max_tokens": 1e30},
    {"presence_penalty": 3}, {"frequency_penalty": -3}, {"repetition_penalty": 0}, {"seed": "a"},
    {"seed": 2**70}, {"stop": 1}, {"stop": [1]}, {"stop": ""}, {"stop": [""]}, {"stream": "maybe"},
    {"logit_bias": {"70": "much"}}, {"logit_bias": {"word": 1}}, {"logit_bias": {"999999": 1}},
    {"logit_bias": [1]}, {"stop_token_ids": ["a"]}, {"min_tokens": 9, "max_tokens": 2},
    {"min_tokens": -1}, {"allowed_token_ids": []}, {"allowed_token_ids": [999_999]},
    {"structured_outputs": {"regex": "[a"}}, {"structured_outputs": {"choice": []}},
    {"structured_outputs": {"regex": "a", "choice": ["a"]}}, {"structured_outputs": {"a": 1}},
    {"structured_outputs": {"json": "{"}}, {"structured_outputs": {}}, {"bad_words": [1]},
    {"structured_outputs": {"grammar": "root ::= ("}}, {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}}, {"response_format": "json"},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 1}}}
    },
    {"stream_options": {"include_usage": True}}, {"stream": True, "stream_options": []},
    {"prompt_logprobs": 1, "stream": True}, {"prompt_logprobs": -2}, {"prompt_logprobs": 99},
    {"truncate_prompt_tokens": 0}, {"truncate_prompt_tokens": -2}, {"use_beam_search": True},
    {"priority": "high"}, {"user": 1}, {"request_id": 5}, {"cache_salt": ""},
    {"logits_processors": ["os.system"]}, {"use_beam_search": True, "n": 2, "stream": True},
    {"guided_regex": "a"}, {"temperature": None}, {"temperature": True}, {"top_k": 1.5},
)  # fmt: skip
WRONG_CHATS: tuple[dict[str, Any], ...] = (
    {"messages": []}, {"messages": None}, {"messages": "Hi"}, {"messages": [1]},
    {"messages": [{}]}, {"messages": [{"role": "user"}]}, {"messages": [{"content": "a"}]},
    {"messages": [{"role": "king", "content": "a"}]}, {"messages": [{"role": 1, "content": "a"}]},
    {"messages": [{"role": "user", "content": 1}]},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": [{"type": "smell", "smell": "a"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"messages": [{"role": "tool", "content": "a"}]}, {"messages": {"role": "user"}},
    {"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]}, {"logprobs": 3},
    {"top_logprobs": 3}, {"logprobs": True, "top_logprobs": -2}, {"tool_choice": "auto"},
    {"logprobs": True, "top_logprobs": 99}, {"tool_choice": "required"}, {"tools": [{}]},
    {"tools": [{"type": "function"}]}, {"tools": "weather"}, {"tools": [TOOL], "tool_choice": "a"},
    {"tools": [{"type": "function", "function": {"name": 1}}]}, {"chat_template_kwargs": []},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "nobody"}}},
    {"tools": [TOOL], "tool_choice": {"type": "function"}}, {"reasoning_effort": "vast"},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "no"}}}],
     "tool_choice": "required"},
    {"add_generation_prompt": True, "continue_final_message": True},
    {"messages": [{"role": "user", "content": "word " * 2000}]}, {"functions": [{}]},
    {"max_completion_tokens": -1}, {"chat_template": "{{ messages"}, {"echo": "yes"},
    {"chat_template": "{{ messages[0].content }}"}, {"documents": [1]}, {"mm_processor_kwargs": {}},
)  # fmt: skip
WRONG_COMPLETIONS: tuple[dict[str, Any], ...] = (
    {"prompt": None}, {"prompt": ""}, {"prompt": []}, {"prompt": [[]]}, {"prompt": 1},
    {"prompt": [1, "a"]}, {"prompt": [None]}, {"prompt": {"a": 1}}, {"prompt": [999_999]},
    {"prompt": [-1]}, {"prompt": "word " * 2000}, {"logprobs": -2}, {"logprobs": 99},
    {"logprobs": "many"}, {"suffix": "end"}, {"suffix": 1}, {"echo": "yes"}, {"best_of": 0},
    {"prompt_embeds": "AAAA"}, {"prompt_embeds": 1}, {"echo": True, "prompt_embeds": "a"},
)  # fmt: skip
MODEL = '{"model": "tiny"}'
RAW: tuple[tuple[str, str, str], ...] = (
    *(("POST", CHAT, body) for body in ("", "{", "[]", '"text"', "null", MODEL)),
    *(("POST", COMPLETION, body) for body in ("", "no JSON", "[1]", MODEL)),
    ("GET", CHAT, ""), ("GET", COMPLETION, ""), ("PUT", CHAT, MODEL), ("DELETE", COMPLETION, ""),
    *(("GET", path, "") for path in ("/v1/models", "/v1/models/tiny", "/v1/nothing")),
    *(("GET", path, "") for path in ("/health", "/ping", "/version")),
    *(("POST", path, MODEL) for path in ("/v1/models", "/v1/nothing", "/rerank")),
    ("POST", "/v1/embeddings", '{"model": "tiny", "input": "a"}'),
    ("POST", "/tokenize", '{"model": "tiny", "prompt": "The capital"}'),
    ("POST", "/tokenize", MODEL),
    ("POST", "/tokenize", '{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}'),
    ("POST", "/tokenize", '{"model": "tiny", "prompt": "a", "return_token_strs": true}'),
    ("POST", "/tokenize", '{"model": "tiny", "prompt": "a", "add_special_tokens": false}'),
    ("POST", "/detokenize", MODEL),
    *(("POST", "/detokenize", f'{{"model": "tiny", "tokens": {ids}}}')
      for ids in ("[1, 70, 80]", '["a"]', "[-1]")),
    ("POST", "/v1/score", '{"model": "tiny", "text_1": "a", "text_2": "b"}'),
)  # fmt: skip
OF_MESSAGES: tuple[dict[str, Any], ...] = (
    {}, {"stream": True}, {"system": "Be brief."}, {"stop_sequences": ["a"]},
    {"stop_sequences": ["a"], "stream": True}, {"top_k": 3, "top_p": 0.5}, {"max_tokens": 0},
    {"metadata": {"user_id": "a"}}, {"max_tokens": None}, {"messages": []}, {"model": "nobody"},
    {"messages": [{"role": "system", "content": "a"}]}, {"temperature": 3}, {"messages": "Hi"},
    {"stream": "maybe"}, {"system": [{"type": "text", "text": "Be brief."}]}, {"tools": [{}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]},
)  # fmt: skip
OF_RESPONSES: tuple[dict[str, Any], ...] = (
    {}, {"stream": True}, {"instructions": "Be brief."}, {"store": False}, {"input": []},
    {"input": [{"role": "user", "content": "Two plus two is"}]}, {"input": 1}, {"input": None},
    {"model": "nobody"}, {"temperature": -1}, {"max_output_tokens": 0}, {"metadata": {"a": "b"}},
    {"max_output_tokens": "few"}, {"top_p": 0.5, "stream": True}, {"previous_response_id": "none"},
    {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
)  # fmt: skip
_KNOWN: dict[str, Any] = {"model": "tiny", "temperature": 0}
OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("/v1/messages", {"max_tokens": 5, "messages": MESSAGES[0]} | _KNOWN | more)
      for more in OF_MESSAGES),
    *(("/v1/responses", {"max_output_tokens": 5, "input": PROMPTS[0]} | _KNOWN | more)
      for more in OF_RESPONSES),
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"x-request-id": "own-id"},
    {"content-type": "application/json; charset=utf-8"},
)
WRONG_HEADERS = ({"content-type": "text/plain"}, {"content-type": ""})
SHARE_OF_WRONG = 0.3
MOST_TOGETHER = 2


def _right(dice: random.Random) -> tuple[str, dict[str, Any]]:
    path = dice.choice((CHAT, CHAT, COMPLETION))
    body: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": dice.randint(1, 12)}
    if path == CHAT:
        body["messages"] = dice.choice(MESSAGES)
    else:
        body["prompt"] = dice.choice(PROMPTS)
    if dice.random() < 0.4:
        body["stream"] = True
        body |= dice.choice(({}, {"stream_options": {"include_usage": True}}))
        if dice.random() < 0.1:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return path, body


def _extras(path: str) -> tuple[dict[str, Any], ...]:
    return BOTH + (OF_CHATS if path == CHAT else OF_COMPLETIONS)


def _wrongs(path: str) -> tuple[dict[str, Any], ...]:
    return WRONG + (WRONG_CHATS if path == CHAT else WRONG_COMPLETIONS)


def requests(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield records of requests, as `replay` reads them: each fixed one, then `count` made ones.

    Every member of the tables above is in one request at least if `count` is 400 or more: they are
    dealt as cards are, and only what a request has more is drawn.
    """
    dice = random.Random(seed)
    for method, path, body in RAW:
        headers = {"content-type": "application/json"} if method != "GET" else {}
        yield {"method": method, "path": path, "body": body, "headers": headers}
    for path, body in OTHERS:
        headers = {"content-type": "application/json"}
        yield {"method": "POST", "path": path, "body": json.dumps(body), "headers": headers}
    decks: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for _ in range(count):
        path, body = _right(dice)
        is_wrong = dice.random() < SHARE_OF_WRONG
        deck = decks.setdefault((path, is_wrong), [])
        if not deck:
            deck += _wrongs(path) if is_wrong else _extras(path)
            dice.shuffle(deck)
        body |= deck.pop()
        for more in dice.sample(_extras(path), 0 if is_wrong else dice.randrange(MOST_TOGETHER)):
            body |= more
        headers = {"content-type": "application/json"} | dice.choice(HEADERS)
        if is_wrong and dice.random() < 0.05:
            headers |= dice.choice(WRONG_HEADERS)
        yield {"path": path, "headers": headers, "body": json.dumps(body)}
