"""The trace of a request reaches the engine, and a broken one fails nothing."""

from typing import Any

import pytest

from lmi_backend.clients.tracing import take_trace, with_trace
from lmi_backend.generation import GenerateRequest, HttpRequest

# The example of the standard.
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"traceparent": PARENT, "tracestate": "vendor=value"}


def test_the_headers_are_taken_out_of_the_parameters() -> None:
    parameters: dict[str, Any] = {"max_tokens": 3} | TRACE
    assert take_trace(parameters) == TRACE
    assert parameters == {"max_tokens": 3}


@pytest.mark.parametrize("parent", ["", "00-short", PARENT.upper(), 7, None])
def test_a_broken_parent_is_dropped_with_its_state(parent: Any) -> None:
    parameters = TRACE | {"traceparent": parent}
    assert take_trace(parameters) == {}
    assert not parameters


def test_every_prompt_of_a_request_belongs_to_the_trace() -> None:
    work = with_trace((GenerateRequest("a"), GenerateRequest("b")), TRACE)
    assert isinstance(work, tuple)
    assert [request.trace_headers for request in work] == [TRACE, TRACE]


def test_a_call_carries_it_as_a_server_would() -> None:
    call = with_trace(HttpRequest("/v1/completions", b"{}", {"accept": "x"}), TRACE)
    assert isinstance(call, HttpRequest)
    assert call.headers == {"accept": "x"} | TRACE
