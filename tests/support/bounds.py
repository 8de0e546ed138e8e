"""The table of what is held in memory for whom, from the constants that bound it."""

from collections.abc import Iterator

from lmi_backend.endpoint.backlog import UNREAD_BYTES as UNREAD_BYTES_OF_ONE
from lmi_backend.endpoint.backlog import UNREAD_BYTES_IN_ALL
from lmi_backend.engines.bodies import FEWEST_VALUES, MOST_ITEMS
from lmi_backend.frontend.answer import ALL_UNREAD_BYTES
from lmi_backend.frontend.bodies import ALL_BODIES, FREE_BYTES, LITTLE, MOST_VALUES
from lmi_backend.frontend.connection import UNSENT_BYTES
from lmi_backend.frontend.exchange import HELD_BYTES
from lmi_backend.frontend.protocol import (
    HEAD_BYTES,
    MOST_HEADERS,
    UNREAD_BYTES,
    WAITING_BYTES,
)
from lmi_backend.pool.connection import UNSENT_BYTES as UNSENT_TO_WORKER
from lmi_backend.serving.limits import HELD_BYTES as HELD_BYTES_OF_MODEL
from lmi_backend.worker.conversation import PAUSE_BYTES
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
        f"values of a JSON body of more than {LITTLE >> 10} KiB, but OpenAI's on its own paths",
        "front end",
        f"{MOST_VALUES:,}",
        "with the bodies; one at a time is read, in a thread",
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
        f"{UNREAD_BYTES_OF_ONE >> 20} MiB and one event",
        f"{ALL_UNREAD_BYTES >> 20} MiB",
        "the answer ends with an error; over all, the one that holds most",
    ),
    (
        "an answer to a client of HTTP/1.0, until it is whole",
        "front end",
        f"{HELD_BYTES >> 20} MiB",
        "as many as requests may run",
        "the answer ends with an error",
    ),
    (
        "what is written and not yet sent",
        "front end",
        "an answer that comes whole",
        f"{UNREAD_BYTES >> 20} MiB, looked at each second",
        "the connections that read least are closed",
    ),
    (
        "values of an OpenAI body; messages, prompts, documents or tools in it",
        "worker",
        f"{FEWEST_VALUES:,}, or twice `max_model_len`; {MOST_ITEMS:,}",
        "with the bodies",
        "400",
    ),
    (
        "output that a stub does not read",
        "worker",
        f"of users' code: pauses from {PAUSE_BYTES >> 20} MiB on",
        f"{MOST_UNSENT >> 20} MiB",
        "each request with more output ends with an error",
    ),
    (
        "requests that run or wait",
        "stub",
        "`option.max_output_size`",
        f"{HELD_BYTES_OF_MODEL >> 30} GiB",
        "503",
    ),
    (
        "requests that a worker does not read",
        "stub",
        "with those that run",
        f"{UNSENT_TO_WORKER >> 20} MiB a worker and one request",
        "the others get what comes; after 30 s of silence the worker is ended",
    ),
    (
        "answers that a front end does not read",
        "stub",
        f"{UNREAD_BYTES_OF_ONE >> 20} MiB and one event",
        f"{UNREAD_BYTES_IN_ALL >> 20} MiB",
        "the answer ends with an error; over all, the largest do",
    ),
    (
        "answers that Triton's ports do not take",
        "stub",
        "the answer",
        "as many as requests may run",
        "they wait",
    ),
)


def table() -> str:
    """Return the table as Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in _lines())


def _lines() -> Iterator[tuple[str, ...]]:
    yield HEADINGS
    yield ("---",) * len(HEADINGS)
    yield from ROWS
