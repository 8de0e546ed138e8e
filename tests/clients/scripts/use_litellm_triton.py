"""`litellm`'s provider triton, for `/generate` and for `/infer`."""

from typing import Any

import litellm
from results import HTTP, URL, run

ASKED: Any = {"model": "triton/echo", "messages": [{"role": "user", "content": "a b"}]}
GENERATE = f"http://{HTTP}/v2/models/echo/generate"
BOTH = (GENERATE, f"{URL}/v2/models/echo/generate")
LIMITS = ("max_tokens", "max_completion_tokens")
INFER = f"http://{HTTP}/v2/models/echo_infer/infer"


def _ask(url: str, **more: Any) -> str:
    answer: Any = litellm.completion(api_base=url, **ASKED, **more)
    return str(answer.choices[0].message.content)


def _stream(url: str, **more: Any) -> list[str]:
    stream = litellm.completion(api_base=url, stream=True, **ASKED, **more)
    return [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]


def more_parameters() -> Any:
    """What it does not know goes on to the server."""
    more = {"max_tokens": 3, "top_k": 1, "min_p": 0.1}
    alone = {"exclude_input_in_output": True}
    words = {"bad_words": "", "stop_words": ""}
    return [_ask(GENERATE, **more, **alone), _ask(GENERATE, **more, **words), _ask(INFER, **more)]


CASES = {
    "generate": lambda: [_ask(url, **{name: 3}) for url in BOTH for name in LIMITS],
    "generate_streamed": lambda: [_stream(url, **{name: 3}) for url in BOTH for name in LIMITS],
    "infer": lambda: [_ask(INFER, **{name: 3}) for name in LIMITS],
    # LiteLLM asks for 20 tokens then.
    "infer_without_a_limit": lambda: _ask(INFER),
    "embedding": lambda: litellm.embedding(model="triton/echo", input=["a b"], api_base=INFER),
    "wrong_value": lambda: _ask(GENERATE, max_tokens=-1),
    "wrong_value_on_the_front_end": lambda: _ask(BOTH[1], max_tokens=-1),
    "wrong_model": lambda: _ask(GENERATE.replace("/echo/", "/none/")),
}

if __name__ == "__main__":
    run(globals() | CASES)
