"""docs/reliability.md, from what the chaos suite saw."""

# ruff: noqa: E501  the rows of a table

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.bounds import table

_HEAD = """<!-- Written by `make chaos`. -->

# What happens when something breaks

A request outlives its worker. When that dies, hangs or is started anew, each of its requests that
can ([below](#what-goes-on)) goes on: on another worker of the model at once, or on the next one that
is ready. Its client sees a pause, and no token twice, changed or missing.

Each fault is done to a running server, most of them under 32 streams: 16 over HTTP, each on a
connection of its own, and 16 over one gRPC stream. Afterwards each request has ended exactly once,
counted at its client and in the metrics, the engine runs nothing, and the server answers again.
An answer that fails in the middle says so in its client's own format, or has no end: no client takes
it for whole ([clients.md](clients.md#errors)).

*Whole* is an answer to its end, *error* one that ends with an error that says why, *cut* a
connection that was closed under it: on Triton's ports tritonserver's own end does that. Times are of one run, on
{cores} shared cores with a tiny model: to the last ending, and until the server answered again.

| fault | whole | error | cut | last ending, s | answers again, s | the clients were told |
| --- | --- | --- | --- | --- | --- | --- |
"""
_MIDDLE = """
## What goes on

What a client has of a stream is kept beside it, four bytes a token. The next worker brings its own
detokeniser, stop strings, tool parser … to the same place from these tokens, sends nothing of it,
and generates the rest. Greedy answers and those with a seed are the same byte for byte in the tests,
sampled ones are drawn anew from there. OpenAI's streams keep their id and time.

| request | with vLLM | with Transformers | with TensorRT-LLM |
| --- | --- | --- | --- |
| nothing of its answer was sent yet, which is any answer that comes whole | asked again, whatever it asks | asked again | asked again |
| a stream of text or a chat, greedy or sampled | goes on: its tokens are computed at once, as a prompt | the same | the same |
| with stop strings | the same | the same | ends |
| with `min_tokens`, a repetition penalty, log probabilities, LoRA | the same | goes on: its tokens are generated again, and checked | ends |
| with a seed, a presence or frequency penalty, `bad_words` | goes on: its tokens are generated again, and checked | the same | ends |
| a structured output, a tool that must be called | the same | not served | ends |
| tools that may be called, Anthropic's messages | goes on as text does | not served | not served |
| a stream of `/v1/responses`: vLLM draws the ids of its items anew; of another path, of several answers or prompts, of beams | ends | ends | ends |
| users' own code (`/invocations`), a change of adapters | ends | ends | ends |

What is *generated again* takes as long as it took before. It is chosen token by token as it was, also
where it was drawn without a seed, so that a grammar, a penalty or a generator stands where it stood.
vLLM cannot be told what to choose where it verifies drafts (speculative decoding): there requests of
these kinds go on if they are greedy or have a seed, and end if not. NeuronX does as Transformers does
alone, but where it samples on the device every stream ends. What TensorRT-LLM does is seen with its
double only; whether its penalties, stop words and guides tell an answer's tokens from a prompt's has
not been seen, so what asks for them ends.

`tests/contract/test_continuation.py` has these kinds, beside answers that nothing disturbed.

`cached_tokens` of a resumed answer's usage is 0: it tells what the first worker found in its cache.
With disaggregated prefill (`kv_transfer_params`) the next worker computes the prompt itself: the
blocks that the first one pulled may be another request's by then.

*Ends* is with an error that names the worker, at once. A request goes on at most
`option.migration_limit` times. One that each of two deaths can be put down to ends alone, and is told
so. While no worker is ready, requests wait for `option.migration_timeout`, new ones too, if a start
usually takes less; by default that is three times the longest start and 15 s. 0 turns all of it off: then
they end at once.

The front end outlives its server in the same way: when a stub or tritonserver dies, it holds its
clients' connections, and asks the model that is back for the rest of their answers, by the same table,
the same suspicion and the same two options; by default it waits 30 s longer, since all is started
again. Requests that come meanwhile wait too, with those answers no more than the model takes at once
(`option.max_rolling_batch_size` and `job_queue_size`); more get 503 with `Retry-After`, and so do all
for a model that was unloaded, or is not back in time. `/ping` says 503 all the while. Streams on
Triton's own ports end with tritonserver, and so do those of the front end's port that come from
there ([clients.md](clients.md#tritons-ports)).

An answer that has begun goes on only with the same model. Where the model's files, its tokenizer, its
chat template or the answer's adapter have changed when the model is back, it ends with an error that
says so. Weights are compared by name, size and time.

`lmi-backend drain URL --worker N` starts a worker anew in this way, `--worker all` one after the
other: for a leak of memory, or new weights. What cannot go on has `--timeout` to end.

## Without streams to lose

| fault | what was seen |
| --- | --- |
"""
_FRONT = """
## Through the front end

Its streams are OpenAI's, LMI's, Text Generation Inference's and Triton's in turn, each on a
connection of its own. Where a fault waits for a time, the front end was given a shorter one than by
default: `--client-timeout` is 60 s, `--keep-alive` 65 s.

| fault | what was seen |
| --- | --- |
"""
_TAIL = """
Beside these `make test` has: a rank of an MPI group that is killed or stands still
(`tests/contract/test_ranks.py`), or one that vLLM has started (`test_vllm_processes.py`), a server
that is stopped while it starts (`tests/integration/test_life.py`), 2,000 hostile bodies (`test_hostile_bodies.py`), a server that
dies again and again, also while it is started, and a killed `serve`
(`tests/security/test_supervision.py`).

## Where LMI does otherwise

| what | LMI | here |
| --- | --- | --- |
| a worker dies under requests | their clients hang until a timeout of 120 s | they go on, on another worker or the next; what cannot ends with an error that names the worker, at once |
| requests while it is restarted | wait, or 400 without a cause | other workers take them; without any they wait, within `option.migration_timeout` |
| one bad parameter | may fail every request in flight | fails that request, and names the field |
| a client leaves | is generated for to the end | its place is free at once, on Triton's own ports within a second for each 256 requests; over Triton's HTTP only if its answer is streamed (see below) |
| more requests than fit | wait without bound in the newer mode | refused as UNAVAILABLE at once (`job_queue_size`) |
| an engine that stands still | nothing, until each request times out | vLLM is restarted after `option.hang_timeout`; others' requests time out |
| the first failure of a worker | the model is FAILED (`retry_threshold` is 0) | ten failures in a row, old ones forgiven |

What LMI does is read from its source (0.37), not run here.

## Bounds

A request is held in the stub as it came, with the text that has not been sent yet, at most one
answer, and four bytes for each token that has: 16 MB for 1,000 streams of 4,000 tokens. Triton
buffers what a slow client does not read: no model of 24.10 can tell, so that is bounded by the
answers' lengths times the places (`option.max_rolling_batch_size` and `job_queue_size`). A request
larger than `option.max_output_size` is refused; an answer that is larger, whole or one response of
a stream, ends with an error, and no other does. A prompt of more characters than its tokens can
have (the context's length times the longest token's) is refused before it is tokenised. That holds
for each prompt of each path, for the messages and tools of a chat together, and from a million characters
on for one that is to be truncated. All prompts of a body have at most 8,000,000 characters together, or
as many as one may have. An OpenAI
body counts as the answers it asks for, `n` to each prompt, wherever answers are counted. While no
worker of a model is ready and none will be soon, its requests are refused as UNAVAILABLE at once, with
the reason; Triton asks a model whether it is ready from 26.03 on (`is_ready`), and before calls it READY meanwhile. An
unload by the model-control API lets running requests end, each within its `option.predict_timeout`.
Refusals are HTTP 400 on 24.10, which has no other status for an error of a model, and UNAVAILABLE
over gRPC.

The images of a request have at most `VLLM_MAX_IMAGE_PIXELS` pixels together (178,956,970, which `option.env`
changes), and are at most `option.limit_mm_per_prompt`. Of those that come as tensors two requests'
are decoded at a time.

A worker holds at most 256 MiB that its stub has not read. Answers of users' code are paused from
8 MiB on. Above 256 MiB each request that has more output fails as UNAVAILABLE.

Triton 24.10 does not look at the connection of `/generate` or `/infer` while an answer that is not
streamed is made. A client that leaves one keeps its place until the answer ends, or the request's
`timeout`, or `option.predict_timeout`: 20 tries of a client that waits 0.3 s for each take 20
places. So give such requests a `timeout`, in microseconds: beside the inputs of `/generate`, among
the `parameters` of `/infer`. Nobody else can do it for them: the kernel knows who has left, but Triton
waits for nothing at such a connection, so that even to shut it down from outside ends no request, and
tells a model nothing from which it could find its connection. A stream, a call over gRPC and whatever comes through the front end is
ended when its client has gone.

An edited serving.properties in the repository is taken when the model is unloaded and loaded, or
loaded once more, which starts the new workers before the old ones end, on the same devices. Triton
decides by the times of a model's files whether there is anything to load, and does not tell the
model where there is not.

Triton's HTTP threads take responses from a queue that holds 278 and loses the next. `lmi-backend
serve` makes it hold thousands, or says why not; [deploy](../deploy/README.md) says how a fleet does.

Each buffer has a bound, for one request and for all together:

"""
_TAIL_END = """
An answer that its client does not read ends with an error. So does one of which a stub would hold
more because the front end is behind. A client that takes nothing for `--client-timeout`, or no longer acknowledges what it is
sent, is cut off, and so is one that takes longer to send headers or a body (408). A connection
without a request is closed after `--keep-alive`, or earlier where there are no descriptors for
another: three quarters of them are for clients. A front end that says nothing for 30 s is ended and
started again, as tritonserver and stubs are.
"""


@dataclass(frozen=True)
class Row:
    """A fault under streams."""

    fault: str
    outcomes: Counter[str]
    last_seconds: float
    back_seconds: float
    told: str


class Report:
    """Collects what was seen."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.notes: list[tuple[str, str]] = []
        self.front_notes: list[tuple[str, str]] = []
        self.began = time.monotonic()

    def note(self, fault: str, seen: str) -> None:
        """Add a fault without streams to lose."""
        self.notes.append((fault, seen))

    def note_front(self, fault: str, seen: str) -> None:
        """Add what was done to the front end, or to its clients."""
        self.front_notes.append((fault, seen))

    def write(self, path: Path, cores: int) -> None:
        """Write the page."""
        lines = [
            f"| {row.fault} | {row.outcomes['whole']} | {row.outcomes['error']} "
            f"| {row.outcomes['cut']} | {row.last_seconds:.1f} | {row.back_seconds:.1f} "
            f"| {row.told} |\n"
            for row in self.rows
        ]
        page = [_HEAD.format(cores=cores), *lines, _MIDDLE, *map(_row, self.notes)]
        page += [_FRONT, *map(_row, self.front_notes), _TAIL, table(), _TAIL_END]
        path.write_text("".join(page), encoding="utf-8")


def _row(note: tuple[str, str]) -> str:
    return f"| {note[0]} | {note[1]} |\n"
