"""docs/reliability.md, from what the chaos suite saw."""

# ruff: noqa: E501  the rows of a table

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.bounds import table

_HEAD = """<!-- Written by `make chaos`. -->

# What happens when something breaks

*For operators: what each fault costs a client, as measured.*

If a worker crashes, hangs or is restarted, its requests [resume](#what-resumes) on another worker, or on the
next one that is ready. The client sees a pause. No token is lost, repeated or changed. A request that cannot
resume fails with an error that says why.

| what fails | what the client of a stream sees |
| --- | --- |
| a worker, or the engine's core | a pause, or an error if its request [cannot resume](#what-resumes) |
| a stub, tritonserver | through the front end the same; on Triton's own ports the connection closes |
| the front end | the connection closes; the next front end accepts a new one after a second or two. A stream that has ids, and a response in the background, continue in the stub, and their clients receive the rest; other requests are cancelled |
| the front end, and a stub or tritonserver before all is back | their answers may be lost: clients that reconnect get 404, which names this cause. Nothing is repeated or wrong |
| the client's connection | the client reconnects and receives the rest, if the stream has ids ([clients.md](clients.md#streams-that-resume)); other requests are cancelled |

Each fault is done to a running server, most of them under 32 streams: 16 over HTTP, each on a connection of
its own, and 16 over one gRPC stream. Afterwards each request has finished exactly once, at its client and in
the metrics. The engine runs nothing, and the server answers again. An answer that fails in the middle says so
in the client's format, or has no end: no client accepts it as complete ([clients.md](clients.md#errors)).

| column | meaning |
| --- | --- |
| complete | streams with every token |
| error | streams that failed with an error that says why |
| cut | connections that were closed, as when tritonserver itself crashes |
| last one, s | seconds until the last stream had finished |
| answers again, s | seconds until the server answered a new request |

Times are of one run, on {cores} shared cores with a tiny model. Rows of vLLM are without a spare, unless they name one.

| fault | complete | error | cut | last one, s | answers again, s | the clients were told |
| --- | --- | --- | --- | --- | --- | --- |
"""
_MIDDLE = """
## What resumes

The tokens that a client has are kept with its stream, four bytes a token. The next worker brings its own
detokeniser, stop strings and tool parser to the same place, sends nothing of it, and generates the rest.
Greedy answers, and those with a seed, are the same byte for byte in the tests. Sampled answers continue with
new draws. OpenAI's streams keep their id and time.

| request | with vLLM | with Transformers | with TensorRT-LLM |
| --- | --- | --- | --- |
| no byte of the answer was sent yet, as in every answer that is not streamed | runs again | runs again | runs again |
| a stream of text or a chat, greedy or sampled | resumes: its tokens are computed at once, as a prompt | the same | the same |
| with stop strings | the same | the same | fails |
| with `min_tokens`, a repetition penalty, log probabilities, LoRA | the same | resumes: its tokens are generated again, and checked | fails |
| with a seed, a presence or frequency penalty, `bad_words` | resumes: its tokens are generated again, and checked | the same | fails |
| a structured output, a tool that must be called | the same | not served | fails |
| tools that may be called, Anthropic's messages | resumes as text does | not served | not served |
| `/v1/responses`, also in the background; the response and its items keep their ids | resumes as text does | not served | not served |
| a response with tools that vLLM runs itself; a stream of another path, of several answers or prompts, of beams | fails | fails | fails |
| users' own code (`/invocations`), a change of adapters | fails | fails | fails |

- **Fails** means at once, with an error that names the worker.
- **Generated again** takes as long as it took before. The same tokens are chosen again, even without a seed, so
  a grammar, a penalty or a generator is where it was.
- **Speculative decoding.** vLLM cannot be told what to choose when it verifies drafts. There these requests
  resume if they are greedy or have a seed, and fail otherwise.
- **NeuronX** does as Transformers does on one process. If it samples on the device, every stream fails.
- **TensorRT-LLM** was tested with its double only. It has not been seen whether its penalties, stop strings and
  guides tell an answer's tokens from a prompt's, so requests with them fail.
- **`cached_tokens`** of a resumed answer is 0: it is what the first worker found in its cache.
- **Disaggregated prefill** (`kv_transfer_params`): the next worker computes the prompt itself. The blocks of
  the first worker may belong to another request by then.

`tests/contract/test_continuation.py` compares these kinds with undisturbed answers.

### How often, and how long

A request resumes at most `option.migration_limit` times. A request suspected of having caused two crashes is
not retried; it fails with that reason. While no worker is ready, requests wait for `option.migration_timeout`.
By default that is three times the longest start and 15 s; 0 makes them fail at once. New requests wait too, if
a start usually takes less.

### Spares

A spare is a second process of a worker: it has imported the engine, and read config and tokenizer. It has no
memory of a GPU. When the worker dies or is restarted (`drain --worker`), the spare loads the model, and the
next one is made. On a CPU it has loaded the model before, if there is memory for a second one.
`option.spare_workers` tells how many workers have one: by default a model with one worker of vLLM has, but none
of MPI ranks. The metric `lmi_worker_spare` and `/api/state` tell whether it is there.

- A spare of vLLM takes about 1 GiB of memory, and about as much CPU as a start. With less than 4 GiB available
  none is made. With the model it takes what the plan counts for weights and KV cache, too: it loads these only if
  4 GiB are left then. An engine that died while it waited is noticed, and its spare is not used.
- It is not used if the files of the model, its tokenizer or its chat template have changed. Nor is it if the
  workers before it died within 10 s of their start. The next worker is then started as without one.
- It stops with its stub. After a crash of the server [the worker stays](#when-the-server-itself-crashes), and gets a
  new spare.
- Code of the user's runs in no spare, and a worker of several machines has none.
- vLLM's own `preload` (0.31 and later) is not used. It keeps the weights of a GPU in another process, and knows
  them by the headers of their files: it cannot tell them from another checkpoint of the same shape (vllm#59647).
  This is what the source of 0.32 says; nothing of it was run on a GPU.

### When the server itself crashes

The front end survives a crash of a stub or of tritonserver. It keeps its clients' connections, and requests the
rest of their answers from the restarted model. The same rules and options apply; the default wait is 30 s longer
because the whole server restarts.

The worker survives it, too: it cancels the requests that it had, and keeps the model loaded. It waits up to 60 s for
the next stub, which adopts it, on a GPU as on a CPU. So the pause does not depend on the model's size. The log of
`serve`, `/api/state` (`is_adopted`), the page and the metric `lmi_worker_adopted` tell it.

- This holds under `lmi-backend serve`, for workers of one process, also those of vLLM that start further processes
  on this machine. A worker of MPI ranks, of several machines, or with code of the user's stops with its stub.
- A worker is killed, and another one started, if an option, the environment, the engine or a file of the model has
  changed. The same holds if its engine died meanwhile, or if it does not answer within 30 s. If the next stub dies
  within 10 s as well, the worker stops: it may have been the cause.
- It stops as soon as its `serve` does, also if that is killed.
- The workers of the server's other models stay, too. Their requests have `--drain-timeout` to finish first.
- Adapters that were registered while the server ran are unknown to the restarted model, as before.

New requests wait too, as many as the model accepts at once (`option.max_rolling_batch_size` and
`job_queue_size`). More get 503 with `Retry-After`. So do all requests for a model that was unloaded, or is not
back in time. `/ping` answers 503 meanwhile. Streams on Triton's own ports are cut, and so are those of the front
end's port that Triton answers ([clients.md](clients.md#tritons-ports)).

### Replacing the front end

`lmi-backend restart --front-end` starts a new front end next to the old one, after an upgrade or a change of its
environment. The new one waits until it knows all models, and then accepts connections on the same socket: none
is refused. The old one answers what it has, closes each connection with its answer, and idle ones after 2 s. Its
streams end in it. After `--timeout` (600 s) it is stopped; streams that clients can resume then continue in the
stub. If the new one exits, or is not ready within 30 s, the old one stays, and the command says why. Several
processes (`--frontend-processes`) are replaced one after the other. While both run, a key may have the limits of
its running requests and tokens in each of them.

### What keeping a stream costs

32 chats of 200 tokens ran at once, on the echo engine with `option.openai`, one token an event. One server had
them with and without `X-LMI-Resumable: 1` in turn, six times each, on a busy machine (2 Intel cores). The medians
of CPU time, in µs a token:

| process | without | with |
| --- | --- | --- |
| front end | 28.9 | 45.3 |
| stub | 18.8 | 25.0 |
| worker | 34.4 | 34.4 |

Complete answers took 40 bytes a token in the front end and 41 in the stub, until their window was over.

### When the model has changed

An answer resumes only with the same model. It fails with an error that says so if the model's files, its
tokenizer, its chat template or the adapter of the answer have changed. Weights are compared by name, size and
samples of their content.

`lmi-backend drain URL --worker N` restarts a worker in this way, `--worker all` one after the other. Use it for
new weights, or against a leak of memory. Requests that cannot resume have `--timeout` to finish. With new
weights, an answer of the old ones resumes only on a worker that still has these; otherwise it fails
(`tests/chaos/test_identity.py`). To lose none, stop new requests first and wait until the running ones have
finished.

## Without streams to lose

| fault | what was seen |
| --- | --- |
"""
_FRONT = """
## Through the front end

The streams are those of OpenAI, LMI, Text Generation Inference and Triton in turn, each on a connection of its
own. Some tests use shorter times than the defaults: `--client-timeout` is 60 s, `--keep-alive` 65 s.

| fault | what was seen |
| --- | --- |
"""
_TAIL = """
`make test` has further faults:

| fault | test |
| --- | --- |
| a rank of an MPI group is killed or hangs | `tests/contract/test_ranks.py` |
| a rank that vLLM has started is killed or hangs | `test_vllm_processes.py` |
| a server is stopped while it starts | `tests/integration/test_life.py` |
| 2,000 hostile bodies | `test_hostile_bodies.py` |
| a server crashes again and again, also while it starts; `serve` is killed | `tests/security/test_supervision.py` |

## Where LMI does otherwise

| what | LMI | here |
| --- | --- | --- |
| a worker crashes under requests | their clients hang until a timeout of 120 s | they resume, on another worker or the next; others fail at once with an error that names the worker |
| requests while it restarts | wait, or 400 without a cause | other workers serve them; without any they wait, within `option.migration_timeout` |
| one bad parameter | may fail every running request | fails that request, and names the field |
| a client disconnects | its answer is generated to the end | its slot is free at once; on Triton's own ports within a second for each 256 requests, over HTTP only for streams (see below) |
| more requests than fit | wait without limit in the newer mode | refused as UNAVAILABLE at once (`job_queue_size`) |
| an engine hangs | nothing, until each request times out | vLLM is restarted after `option.hang_timeout`; requests of other engines time out |
| the first failure of a worker | the model is FAILED (`retry_threshold` is 0) | ten failures in a row, old ones forgiven |

What LMI does is read from its source (0.37), not run here.

## How long a large body delays others

A body above 256 KiB is read in turns of about 1 ms: first its outline without long strings, then each string in
pieces. It is passed on without copies. It has its own connection between front end and stub, so probes and small
requests overtake it. The front end refuses a prompt with more characters than the model's tokens can have.

One client sends large bodies of 14 kinds: a long text, 40,000 texts, numbers, blanks, escapes, other letters and
base64. It sends them on the paths of OpenAI, LMI, Text Generation Inference and Triton. At the same time run
`GET /live`, `GET /ping` and a stream of 200 tokens a second. The engine is `echo`, on 2 shared cores. Each figure
is the longest delay of the slowest kind. Each kind is tried three times, and its best try counts.

| body | `/live`: front end | `/ping`: and stub | between two tokens: and worker |
| --- | --- | --- | --- |
| none | 9 ms | 11 ms | 13 ms |
| 1 MiB | 8 ms | 13 ms | 14 ms |
| 4 MiB | 8 ms | 13 ms | 54 ms |
| 16 MiB | 31 ms | 46 ms | 55 ms |
| 60 MiB | 23 ms | 36 ms | 37 ms |

The slowest kind has 40,000 texts. For the 54 ms it is a prompt of one text of 4 MiB in other letters: `echo`
answers with that text, and so writes 8 MB at once. Without this kind it is 15 ms.

The machine was busy, most of all for bodies of 16 MiB. A later run had a load of 7:

| body | `/live`: front end | `/ping`: and stub | between two tokens: and worker |
| --- | --- | --- | --- |
| none | 26 ms | 32 ms | 62 ms |
| 16 MiB | 36 ms | 53 ms | 68 ms |

A smaller `--max-body` (64 MiB by default) lowers all of it. These may take longer:

| what | how long, 60 MB |
| --- | --- |
| vLLM's server reads a body itself, if a plugin or an option looks at answers: its worker sends nothing meanwhile | 0.13 s |
| a small request behind a large one on the one connection between stub and worker | 0.2 s |
| a body on Triton's own ports, where its size has no limit ([security.md](security.md#what-is-not-protected)): the stub copies it, and reads it in turns | 0.15 s |

## Bounds

**Requests.** A stub keeps each request as it came, with its unsent text, at most one answer, and four bytes for
each sent token. A request over `option.max_output_size` is refused. A larger answer, or a larger response of a
stream, fails. An OpenAI body counts as the answers that it requests: `n` to each prompt.

**Prompts.** A prompt with more characters than its tokens can have is refused before it is tokenised: the length
of the context times the longest token. This holds for each prompt of each path, and for the messages and tools of
a chat together. For a prompt that is truncated it holds from a million characters on. All prompts of a body
together may have 8,000,000 characters, or as many as one prompt may have.

**No worker.** If no worker of a model is ready, and none will be soon, its requests are refused as UNAVAILABLE at
once, with the reason. From 26.03 on Triton checks whether a model is ready (`is_ready`). It is, unless all its
workers are abandoned: a request that waits for a worker is answered. Refusals are UNAVAILABLE over gRPC, and 400
over HTTP on Triton 24.10, which has no other status for an error of a model.

**Unloads.** The model-control API lets running requests finish, each within its `option.predict_timeout`.

**Images, clips and sounds.** The images of a request may have `VLLM_MAX_IMAGE_PIXELS` pixels together (set it in
`option.env`), and `option.limit_mm_per_prompt` limits their number. Images in tensors are decoded for two requests
at a time. Frames of clips count as images, by the header of the clip if OpenCV can read it. Sounds count by their
size. A request without room waits in turn. Clients may send `media_io_kwargs` and `mm_processor_kwargs` only with
`option.trust_request_mm_kwargs=true`.

**Workers.** A worker holds at most 256 MiB that its stub has not read. Answers of users' code pause from 8 MiB on.
Above 256 MiB each request with more output fails as UNAVAILABLE.

**Slow clients of Triton's ports.** Triton buffers what a client does not read, and no model of 24.10 can tell. The
limit is the length of the answers times the number of requests (`option.max_rolling_batch_size` and
`job_queue_size`).

**Clients that disconnect from Triton's HTTP port.** Triton 24.10 does not look at the connection of `/generate` or
`/infer` before an answer that is not streamed is complete. Such a request keeps its slot until the answer, its
`timeout` or `option.predict_timeout`. So give it a `timeout`, in microseconds: next to the inputs of `/generate`,
among the `parameters` of `/infer`. Streams, calls over gRPC and all requests through the front end are cancelled
when their client disconnects.

**An edited serving.properties** in the repository is used when the model is unloaded and loaded, or loaded again. A
second load starts the new workers before it stops the old ones, on the same devices. Triton looks at the times of
a model's files, and skips a load without changes.

**Triton's HTTP threads** read responses from a queue that holds 278 and loses the next. `lmi-backend serve` makes
room for thousands, or says why not. For a server of your own see [deploy](../deploy/README.md).

Each buffer has a limit, for one request and for all together:

"""
_TAIL_END = """
- An answer that its client does not read fails. So does one that a stub would have to hold
  because the front end is behind.
- A client that reads nothing for `--client-timeout`, or no longer acknowledges data, is disconnected. So is one
  that takes longer to send headers or a body (408).
- A connection without a request is closed after `--keep-alive`, or earlier if descriptors run out. Three quarters
  of them are for clients.
- A front end that hangs for 30 s is killed and restarted, as tritonserver and stubs are.
"""

_PAUSES = (
    "| vLLM's worker or its engine core is killed, ",
    "| the stub of vLLM or tritonserver is killed, ",
)
"""How rows of `tools/pauses.py` begin."""


@dataclass(frozen=True)
class Row:
    """A fault under streams."""

    fault: str
    outcomes: Counter[str]
    last_seconds: float
    back_seconds: float
    message: str


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
            f"| {row.message} |\n"
            for row in self.rows
        ]
        page = [_HEAD.format(cores=cores), *lines, _MIDDLE, *map(_row, self.notes)]
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        page += [
            _FRONT,
            kept_pauses(before),
            *map(_row, self.front_notes),
            _TAIL,
            table(),
            _TAIL_END,
        ]
        path.write_text("".join(page), encoding="utf-8")


def replace_pauses(path: Path, note: tuple[str, str]) -> None:
    """Replace a row of `tools/pauses.py` in the page, which the chaos suite keeps."""
    text = path.read_text(encoding="utf-8")
    after = _row(note)
    start = next(each for each in _PAUSES if after.startswith(each))
    rows = [row for row in kept_pauses(text).splitlines(True) if not row.startswith(start)]
    for row in kept_pauses(text).splitlines(True):
        text = text.replace(row, "")
    head, table, tail = text.partition(_FRONT)
    kept = "".join(sorted([*rows, after], key=_order))
    path.write_text(f"{head}{table}{kept}{tail}", encoding="utf-8")


def kept_pauses(text: str) -> str:
    """Return the rows of `tools/pauses.py` in a page; nothing if there are none."""
    return "".join(line for line in text.splitlines(True) if line.startswith(_PAUSES))


def _order(row: str) -> int:
    return [row.startswith(each) for each in _PAUSES].index(True)


def _row(note: tuple[str, str]) -> str:
    return f"| {note[0]} | {note[1]} |\n"
