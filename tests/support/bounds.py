"""The table of what is held in memory for whom, from the constants that bound it."""

from collections.abc import Iterator

from lmi_backend.clients.triton.inference import MOST_TEXT
from lmi_backend.endpoint.backlog import UNREAD_BYTES as UNREAD_BYTES_OF_ONE
from lmi_backend.endpoint.backlog import UNREAD_BYTES_IN_ALL
from lmi_backend.endpoint.kept import ALL_KEPT_BYTES as ALL_KEPT_IN_STUB
from lmi_backend.endpoint.kept import KEPT_BYTES as KEPT_IN_STUB
from lmi_backend.engines.bodies import FEWEST_VALUES
from lmi_backend.engines.body_texts import MOST_ITEMS
from lmi_backend.engines.vllm.images import TIMES, WAIT_SECONDS
from lmi_backend.frontend.answer import ALL_UNREAD_BYTES
from lmi_backend.frontend.connection import UNSENT_BYTES
from lmi_backend.frontend.http.bodies import ALL_BODIES, FREE_BYTES
from lmi_backend.frontend.http.encodings import MOST_ENCODINGS, WINDOW_BYTES
from lmi_backend.frontend.http.protocol import HEAD_BYTES, MOST_HEADERS, WAITING_BYTES
from lmi_backend.frontend.http.unread import UNREAD_BYTES
from lmi_backend.frontend.keeping import ALL_KEPT_BYTES, KEPT_BYTES
from lmi_backend.outline import LARGE, MOST_BYTES, MOST_VALUES, MOST_WIDE
from lmi_backend.pool.connection import UNSENT_BYTES as UNSENT_TO_WORKER
from lmi_backend.serving.limits import OPEN_BYTES
from lmi_backend.supervisor.log_relay import KEPT_BYTES as KEPT_LINES
from lmi_backend.worker.conversation import PAUSE_BYTES
from lmi_backend.worker.handlers.provided.djl_python.inputs import (
    MOST_VALUES as MOST_VALUES_OF_HANDLERS,
)
from lmi_backend.worker.outgoing import MOST_UNSENT

HEADINGS = ("what is held", "where", "of one request", "over all", "what comes beyond")
ROWS = (
    (
        "a head, a chunk's extension, trailers",
        "front end",
        f"{HEAD_BYTES >> 10} KiB, {MOST_HEADERS} headers",
        "three quarters of the descriptors are connections",
        "431, and the connection is closed",
    ),
    (
        "pipelined requests",
        "front end",
        f"{WAITING_BYTES >> 10} KiB and one read",
        "as above",
        "reading pauses until the earlier response is complete",
    ),
    (
        "bodies, until their requests end",
        "front end",
        "`--max-body`",
        f"{ALL_BODIES} times `--max-body`, without the first {FREE_BYTES >> 10} KiB of each",
        "the largest body that is arriving gets 503",
    ),
    (
        "a compressed body that is decoded",
        "front end",
        f"`--max-body` in each of {MOST_ENCODINGS} encodings; a window of {WINDOW_BYTES >> 20} MiB",
        "one at a time, then with the bodies",
        "413; a larger window 400",
    ),
    (
        f"values of a JSON body of more than {LARGE >> 10} KiB, but OpenAI's on its own paths",
        "front end",
        f"{MOST_VALUES:,}",
        "with the bodies",
        "413",
    ),
    (
        "what is not in long strings of such a body; a text in it that is not all ASCII",
        "front end, worker",
        f"{MOST_BYTES >> 20} MiB; {MOST_WIDE:,} characters",
        "with the bodies",
        "413; 400",
    ),
    (
        "JSON, and texts that may be JSON, of a request that Triton answers",
        "front end",
        f"{MOST_TEXT >> 20} MiB",
        "with the bodies",
        "413",
    ),
    (
        "requests that a stub does not read",
        "front end",
        "with the bodies",
        f"{UNSENT_BYTES >> 20} MiB a model",
        "503",
    ),
    (
        "an answer that its client does not read",
        "front end",
        f"{UNREAD_BYTES_OF_ONE >> 20} MiB",
        f"{ALL_UNREAD_BYTES >> 20} MiB",
        "the answer fails if its client takes nothing for 1 s; over all, the largest "
        "one of the key "
        "that holds most",
    ),
    (
        "an answer that is kept for a client that reconnects, compressed",
        "front end",
        f"{KEPT_BYTES >> 20} MiB",
        f"{ALL_KEPT_BYTES >> 20} MiB",
        "its oldest events are deleted, or without a client all of it. Over all: the answers of "
        "the key that holds most, the longest without a client first",
    ),
    (
        "the same answer, for the next front end",
        "stub",
        f"{KEPT_IN_STUB >> 20} MiB",
        f"{ALL_KEPT_IN_STUB >> 20} MiB a model",
        "it does not outlive its front end; over all, those of the key that holds most, "
        "first those "
        "of front ends that have crashed",
    ),
    (
        "what is written and not yet sent",
        "front end",
        "an answer that comes whole",
        f"{UNREAD_BYTES >> 20} MiB, looked at each second",
        "the connections of the key for which most waits are closed, first those that read least",
    ),
    (
        "values of an OpenAI body; messages, prompts, documents or tools in it",
        "worker",
        f"{FEWEST_VALUES:,}, or twice `max_model_len`; {MOST_ITEMS:,}",
        "with the bodies",
        "400",
    ),
    (
        "pixels of decoded images and clips; a sound counts as its size, 3 bytes a pixel (vLLM)",
        "worker, until vLLM has processed them",
        "`VLLM_MAX_IMAGE_PIXELS`",
        f"{TIMES} times `VLLM_MAX_IMAGE_PIXELS`",
        f"400; over all, 503 after {WAIT_SECONDS:g} s",
    ),
    (
        f"values of JSON of more than {LARGE >> 10} KiB in a tensor or a parameter",
        "stub",
        f"{MOST_VALUES:,}",
        "with the requests",
        "400",
    ),
    (
        f"values of a body of more than {LARGE >> 10} KiB that users' code reads by `get_as_json`",
        "worker",
        f"{MOST_VALUES_OF_HANDLERS:,}",
        "with the bodies",
        "`ValueError` in that code",
    ),
    (
        "output that a stub does not read",
        "worker",
        f"of users' code: pauses from {PAUSE_BYTES >> 20} MiB on",
        f"{MOST_UNSENT >> 20} MiB",
        "each request with more output fails",
    ),
    (
        "requests that run or wait",
        "stub",
        "`option.max_output_size`",
        f"{OPEN_BYTES >> 30} GiB",
        "503",
    ),
    (
        "requests that a worker does not read",
        "stub",
        "with those that run",
        f"{UNSENT_TO_WORKER >> 20} MiB a worker and one request",
        "the others get what comes; after 30 s of silence the worker is killed",
    ),
    (
        "answers that a front end does not read",
        "stub",
        f"{UNREAD_BYTES_OF_ONE >> 20} MiB",
        f"{UNREAD_BYTES_IN_ALL >> 20} MiB",
        "the answer fails if the front end takes nothing for 1 s; over all, the largest "
        "of the key "
        "that holds most do",
    ),
    (
        "answers that Triton's ports do not take",
        "stub",
        "the answer",
        "as many as requests may run",
        "they wait",
    ),
    (
        "lines of the log that nobody reads",
        "`serve`",
        "",
        f"{KEPT_LINES >> 20} MiB",
        "the oldest are dropped, and their number is logged",
    ),
)


def table() -> str:
    """Return the table as Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in _lines())


def _lines() -> Iterator[tuple[str, ...]]:
    yield HEADINGS
    yield ("---",) * len(HEADINGS)
    yield from ROWS
