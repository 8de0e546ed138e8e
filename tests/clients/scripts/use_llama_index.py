"""`llama-index-llms-nvidia-triton`, as it comes: the model `ensemble` over gRPC."""

from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.llms.nvidia_triton import NvidiaTriton
from results import GRPC, run

PROMPT = "a b c"


def _llm(tokens: int) -> NvidiaTriton:
    return NvidiaTriton(server_url=GRPC, tokens=tokens)


def complete() -> Any:
    return _llm(6).complete(PROMPT).text


def stream_complete() -> Any:
    return [chunk.delta for chunk in _llm(6).stream_complete(PROMPT)]


def chat() -> Any:
    answer = _llm(6).chat([ChatMessage(role="user", content=PROMPT)])
    return answer.message.content


def stream_chat() -> Any:
    chunks = _llm(6).stream_chat([ChatMessage(role="user", content=PROMPT)])
    return "".join(chunk.delta or "" for chunk in chunks)


def stopped() -> Any:
    """Stop an answer of half a minute with the library's own call; count what came."""
    client = _llm(3000)._get_client()
    tokens = client.request_streaming("ensemble", "77", prompt=[[PROMPT]], tokens=3000)
    first = next(tokens)
    # It waits until the server has ended both requests.
    client.stop_stream("ensemble", "77")
    return [first, tokens.qsize()]


if __name__ == "__main__":
    run(globals())
