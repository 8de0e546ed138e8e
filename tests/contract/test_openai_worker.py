"""OpenAI's bodies in a real worker process: vLLM's own application, and ours for the others."""

import json
from typing import Any

import pytest

from lmi_backend.clients.openai import RESETS, TOKENS
from lmi_backend.clients.spec import DESCRIPTION
from lmi_backend.errors import CancelledError
from tests.support.interpreter.releases import vllm_release
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import RecordingSink

CHAT = [{"role": "user", "content": "What is the capital of Italy?"}]
ROME = "The capital of Italy is Rome."
LONG = {"prompt": "Tell a story:", "max_tokens": 900, "ignore_eos": True}


pytestmark = pytest.mark.parametrize("engine", ["vllm", "transformers"], indirect=True)


def ask(engine: Any, path: str, body: Any = None) -> tuple[int, Any]:
    sink = engine.post(path, body).wait()
    assert [chunk.is_last for chunk in sink.deltas] == [False] * (len(sink.deltas) - 1) + [True]
    return sink.answer


def choices(sink: RecordingSink) -> list[Any]:
    """Return those of the answer, or of all events of the stream."""
    return [choice for event in sink.events for choice in event["choices"]]


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": "lmi"}])
def test_a_model_need_not_be_named(engine: Any, model: dict[str, Any]) -> None:
    status, answer = ask(
        engine, "/v1/chat/completions", {"messages": CHAT, "temperature": 0} | model
    )
    assert (status, answer["model"]) == (200, "lmi")
    assert answer["choices"][0]["message"]["content"] == ROME


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_counted_for_the_call(engine: Any, stream: bool) -> None:
    body = LONG | {"n": 2, "max_tokens": 20, "stream": stream}
    chunks = engine.post("/v1/completions", body).wait().deltas
    assert sum(chunk.num_tokens for chunk in chunks) == 40
    assert chunks[-1].num_prompt_tokens > 0


def test_all_prompts_are_counted_for_the_call(engine: Any) -> None:
    body = {"prompt": ["Tell a story:", "Count to one hundred:"], "max_tokens": 2}
    sink = engine.post("/v1/completions", body)
    usage = sink.answer[1]["usage"]
    assert sink.deltas[-1].num_prompt_tokens == usage["prompt_tokens"]


STORY = [{"role": "user", "content": "ab " * 400_000}]
TOO_LONG: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": ["a", "ab " * 400_000], "truncate_prompt_tokens": 5},
    "/v1/chat/completions": {"messages": STORY},
    "/tokenize": {"prompt": "ab " * 400_000},
    "/v1/messages/count_tokens": {"model": "lmi", "messages": STORY},
    "/v1/responses": {"input": STORY},
}
SERVED = {"vllm": TOO_LONG.keys(), "transformers": {"/v1/completions", "/v1/chat/completions"}}


def test_a_prompt_that_cannot_fit_is_tokenised_on_no_path(engine: Any) -> None:
    for path in SERVED[engine.plan.engine]:
        status, answer = ask(engine, path, TOO_LONG[path])
        assert status == 400, path
        assert "characters; accepted: at most" in answer["error"]["message"]


@pytest.mark.parametrize(
    "structure",
    [
        {"json": {"$ref": "#"}},
        {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}},
        {"json": {"$ref": "#/nothing"}},
        {"json": {"$ref": 5}},
        {"json": {"$ref": "#" + "/a" * 500}},
        {"grammar": "root ::= root"},
        {"grammar": "root ::= nothing"},
        {"regex": "("},
        {"regex": "/a" * 60_000 + "("},
    ],
    ids=["itself", "a circle", "nothing", "number", "long", "rule", "no rule", "pattern", "paths"],
)
def test_a_structure_that_fits_nothing_is_the_clients_fault(
    engine: Any, structure: dict[str, Any]
) -> None:
    body = {"messages": CHAT, "max_tokens": 2, "structured_outputs": structure}
    status, answer = ask(engine, "/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (400, 400)
    assert ask(engine, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 2})[0] == 200


def test_what_is_compiled_is_bounded_wherever_it_stood(engine: Any) -> None:
    if vllm_release() < (0, 32):
        pytest.skip("an older vLLM may know no tools that a message adds")
    # More than an enum may have, and no more than a prompt may.
    choices = [str(number) for number in range(2001)]
    schema = {"type": "object", "properties": {"x": {"enum": choices}}, "required": ["x"]}
    # vLLM keeps a model to the schema of a tool that is strict.
    definition = {"name": "f", "strict": True, "input_schema": schema}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    body = {
        "model": "lmi",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": [added]}],
        "tool_choice": {"type": "any"},
    }
    status, answer = ask(engine, "/v1/messages", body)
    is_vllm = engine.plan.engine == "vllm"
    assert status == (400 if is_vllm else 404)
    assert ("max_structure_" in json.dumps(answer)) == is_vllm


@pytest.mark.parametrize("how", [{"stream": True}, {"n": 2}])
def test_a_client_that_leaves_frees_the_engine(engine: Any, how: dict[str, Any]) -> None:
    # Many, so that they do not end by themselves before they are all there.
    sinks = [engine.post("/v1/completions", LONG | how) for _ in range(64)]
    wait_for(lambda: engine.running() > 0)
    with engine.stopped_cores():
        for sink in sinks:
            sink.is_gone = True
        assert {type(sink.wait().error) for sink in sinks} == {CancelledError}
        (worker,) = engine.service.snapshot().workers
    wait_for(lambda: engine.running() == 0)
    if engine.plan.engine == "vllm":
        # By themselves they would have taken a step for each token.
        (now,) = engine.service.snapshot().workers
        assert now.stats.steps - worker.stats.steps < LONG["max_tokens"] / 2


def test_several_prompts_and_answers_are_numbered(engine: Any) -> None:
    prompts = ["The capital of Italy is", "The capital of France is"]
    body = {"prompt": prompts, "n": 2, "temperature": 0, "max_tokens": 8, "echo": True}
    if engine.plan.engine == "vllm":
        body["temperature"], body["top_k"] = 1, 1
    _, answer = ask(engine, "/v1/completions", body)
    texts = {choice["index"]: choice["text"] for choice in answer["choices"]}
    rome, paris = f"{prompts[0]} Rome.", f"{prompts[1]} Paris."
    assert texts == {0: rome, 1: rome, 2: paris, 3: paris}


COMPLETION: dict[str, Any] = {
    "prompt": "The capital of Italy is",
    "temperature": 0,
    "max_tokens": 3,
}


@pytest.mark.parametrize("ids", [False, True], ids=["text", "ids"])
@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["whole", "stream"])
def test_an_echo_has_the_log_probabilities_of_its_prompt(
    engine: Any, ids: bool, more: dict[str, Any]
) -> None:
    prompt = [296, 355, 402] if ids else COMPLETION["prompt"]
    body = COMPLETION | {"prompt": prompt, "echo": True, "logprobs": 1, "ignore_eos": True} | more
    if engine.plan.engine == "transformers" or "stream" not in body:
        # vLLM's streams have the prompt's log probabilities in the first choice alone.
        body |= {"n": 2, "temperature": 1, "seed": 1}
    answered = choices(engine.post("/v1/completions", body))
    for index in range(body.get("n", 1)):
        own = [choice for choice in answered if choice["index"] == index]
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        lists = [[v for choice in own for v in choice["logprobs"][name]] for name in names]
        assert len({len(each) for each in lists}) == 1
        assert lists[0]
        assert len(lists[0]) > len(prompt if ids else prompt.split()) + 2
        assert lists[1][0] is None
        assert all(value <= 0 for value in lists[1][1:])
        assert lists[3][0] == 0
        assert sorted(lists[3]) == lists[3]
        text = "".join(choice["text"] for choice in own)
        assert text.startswith(prompt if isinstance(prompt, str) else "")


def test_an_answer_whose_prompt_is_computed_later_than_anothers_echoes_it_too(engine: Any) -> None:
    """A step computes 2,048 tokens at most: the third prompt when the first answers go on."""
    prompt = [7 + number % 400 for number in range(900)]
    body = COMPLETION | {"prompt": prompt, "echo": True, "logprobs": 1, "ignore_eos": True}
    body |= {"n": 3, "temperature": 1, "seed": 1, "stream": True}
    answered = choices(engine.post("/v1/completions", body))
    for index in range(3):
        own = [choice for choice in answered if choice["index"] == index]
        values = [value for choice in own for value in choice["logprobs"]["token_logprobs"]]
        assert len(values) == len(prompt) + body["max_tokens"], own[-1]
        assert [value is None for value in values[:2]] == [True, False]


def test_answers_of_one_seed_differ_and_come_again(engine: Any) -> None:
    body = {"prompt": "Tell", "n": 3, "seed": 5, "temperature": 2, "max_tokens": 12}
    first, second = (ask(engine, "/v1/completions", body)[1]["choices"] for _ in range(2))
    texts = [choice["text"] for choice in first]
    assert len({*texts}) == 3
    assert [choice["text"] for choice in second] == texts


def test_a_seed_gives_one_answer_in_however_many_steps_its_prompt_is_computed(engine: Any) -> None:
    """A step computes 2,048 tokens at most: of prompts that come together some are cut."""
    more = {"temperature": 2, "seed": 7, "max_tokens": 12, "ignore_eos": True, "stream": True}
    prompts = [[7 + number * step % 400 for number in range(900)] for step in (1, 3, 7, 9, 11)]

    def start(prompt: list[int]) -> RecordingSink:
        return engine.post("/v1/completions", more | {"prompt": prompt})

    def text(sink: RecordingSink) -> str:
        return "".join(choice["text"] for choice in choices(sink))

    with engine.whole_streams():
        texts = [text(sink) for sink in [start(prompt) for prompt in prompts]]
    alone = [text(start(prompt)) for prompt in prompts]
    assert texts == alone
    assert len({*texts}) == len(texts)


def test_a_prompt_may_be_rendered_and_answered_as_tokens(engine: Any) -> None:
    if engine.plan.engine != "vllm" or vllm_release() < (0, 32):
        pytest.skip("paths of vLLM's own, which other releases have in other places")
    bodies = {
        "/v1/chat/completions/render": {"messages": CHAT},
        "/v1/completions/render": {"prompt": "a"},
        "/v1/responses/render": {"input": "a"},
        "/v1/messages/render": {"model": "lmi", "messages": CHAT, "max_tokens": 5},
    }
    rendered = {path: ask(engine, path, body) for path, body in bodies.items()}
    assert {status for status, _ in rendered.values()} == {200}
    asked = rendered["/v1/chat/completions/render"][1]
    ids = asked["token_ids"]
    sampling = {"temperature": 0, "max_tokens": 20}
    status, answer = ask(engine, TOKENS, {"token_ids": ids, "sampling_params": sampling})
    assert (status, len(answer["choices"])) == (200, 1)
    request = {"messages": CHAT, **sampling}
    text = ask(engine, "/v1/chat/completions", request)[1]["choices"][0]["message"]["content"]
    for path, body in (
        ("/v1/chat/completions/derender", {"generate_response": answer, "chat_request": request}),
        ("/v1/completions/derender", {"generate_responses": [answer]}),
    ):
        status, again = ask(engine, path, body)
        assert status == 200, again
        assert text in json.dumps(again["choices"])
    for wrong in ({"sampling_params": {"n": 2}}, {"features": {"mm_hashes": {}}}):
        assert ask(engine, TOKENS, {"token_ids": ids, "sampling_params": {}} | wrong)[0] == 400
    assert ask(engine, "/tokenizer_info")[0] == 404
    status, described = ask(engine, DESCRIPTION)
    assert status == 200
    chat = described["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
    assert "ChatCompletionRequest" in json.dumps(chat)
    assert "temperature" in json.dumps(described["components"]["schemas"]["ChatCompletionRequest"])


def test_a_cache_is_emptied_where_the_engine_has_it(engine: Any) -> None:
    for path in RESETS:
        status, answer = ask(engine, path)
        if engine.plan.engine == "vllm":
            assert (status, answer) == (200, {"success": True}), path
        else:
            assert status == 404
