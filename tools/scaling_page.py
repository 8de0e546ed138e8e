"""docs/scaling.md, from measured costs and the simulation of tools/scale.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scale import COSTS, Costs, Load, simulate, table

from lmi_backend.ipc.flush_policy import MAX_RESPONSES, RESPONSE_SECONDS

_WHAT = {
    "worker_token": "worker front end, a token (echo; vLLM's own detokenising comes on top)",
    "worker_request": "worker front end, a request",
    "stub_response": "stub, a response",
    "stub_token": "stub, a token in it",
    "stub_request": "stub, a request",
    "server_response": "tritonserver, a response",
    "server_request": "tritonserver, a request",
}
# Llama 3.1 70B in FP8 with tensor parallel degree 8: 256 streams at 45 tokens/s each.
_LARGE = Load(256, 45)


def scaling_page() -> Iterator[str]:
    """Yield the lines of the page."""
    data = json.loads(COSTS.read_text(encoding="utf-8"))
    costs = Costs.measured()
    yield "# What one server carries\n"
    yield (
        "An engine's tokens pass a worker's front end (one core of Python), the stub (Python on "
        "one core, whatever the machine has) and tritonserver (as many threads as it wants). A "
        "response costs the same however many tokens share it, so the rate of responses, not of "
        "tokens, decides what a server carries.\n"
    )
    yield from _costs(data)
    yield "## Predicted\n"
    yield (
        "`tools/scale.py` simulates streams, flush policy, stub and server from these costs. 2 "
        "cores are the machine above; 96 cores stand for one with 8 GPUs, whose cores are not "
        "slower. The delay is what sharing a response and waiting for the stub add to a token. "
        "More than 1 of 1 front ends cannot be: such a load needs more workers. The costs were "
        "taken on a machine with little to do, where each response wakes processes; under "
        "load they fall, so that predictions err on the safe side.\n"
    )
    yield from table()
    yield ""
    yield from _reading(costs)
    yield from _check(data["checks"])


def _costs(data: dict[str, Any]) -> Iterator[str]:
    here = data["machine"]
    yield "## Measured costs\n"
    yield (
        f"CPU in µs on {here['cores']} cores of {here['processor']}: `make scale` runs the echo "
        "engine with many responses, many tokens in few responses, and many requests, and solves "
        "for the three.\n"
    )
    yield "| what | µs |"
    yield "| --- | --- |"
    for name, value in data["costs_us"].items():
        yield f"| {_WHAT[name]} | {value} |"
    yield ""
    response = data["costs_us"]["stub_response"] + data["costs_us"]["server_response"]
    yield (
        f"A response takes stub and tritonserver {response:.0f} µs here. Under load it takes them "
        f"about {RESPONSE_SECONDS * 1e6:.0f} µs, with which the flush policy counts.\n"
    )


def _reading(costs: Costs) -> Iterator[str]:
    done = simulate(_LARGE, costs)
    alone = 1e6 / (costs.stub_response + costs.stub_token)
    yield "## What follows\n"
    yield (
        f"- **The stub is the first limit.** Alone it could send {alone:,.0f} responses/s; the "
        f"flush policy asks it for at most {MAX_RESPONSES:,}, about half of that "
        "(`ipc/flush_policy.py`), and above that tokens share responses, up to 50 ms apart. "
        "Beyond, what waits in the stub is merged: delay grows, nothing is lost or queued without "
        "bound."
    )
    yield (
        "- **tritonserver** needs about as much CPU as the stub and has many threads: it is no "
        "limit before the stub is, on any machine with cores to spare."
    )
    yield (
        "- **A 70B model on 8 H200** (FP8, tensor parallel 8) is expected to make about 45 "
        "tokens/s for each of 256 streams; that figure is an assumption, no such machine was at "
        f"hand. One server then carries {done.tokens_per_second:,.0f} tokens/s with "
        f"{done.busy['stub']:.2f} of a core in the stub and {done.busy['tritonserver']:.2f} in "
        "tritonserver: one server is enough for 8 GPUs, and the engine is the limit."
    )
    yield (
        "- **Add a worker** (`minWorkers`) when a front end takes most of its core: each has its "
        "own. **Add a model or a server** when the stub does, or when the delay above matters "
        "more to you than the CPU. `option.stream_flush_ms` sets the distance by hand."
    )
    yield ""


def _check(rows: list[list[Any]]) -> Iterator[str]:
    yield "## Checked\n"
    yield "The echo engine at three loads that the costs were not taken from:\n"
    yield "| streams | what | predicted | measured |"
    yield "| --- | --- | --- | --- |"
    for streams, what, predicted, measured in rows:
        yield f"| {streams} | {what} | {predicted} | {measured} |"
