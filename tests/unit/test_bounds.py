"""docs/limits.md says what bounds each buffer, in the figures of the code."""

import re

import pytest

from lmi_backend.clients.triton import MOST_TEXT
from lmi_backend.endpoint.backlog import UNREAD_BYTES as UNREAD_BYTES_OF_ONE
from lmi_backend.endpoint.backlog import UNREAD_BYTES_IN_ALL
from lmi_backend.endpoint.buffered import ALL_BUFFERED_BYTES, BUFFERED_BYTES
from lmi_backend.engines.bodies import MOST_ITEMS
from lmi_backend.engines.vllm.images import TIMES, WAIT_SECONDS
from lmi_backend.frontend.answer import ALL_UNREAD_BYTES
from lmi_backend.frontend.http.bodies import ALL_BODIES, WINDOW_BYTES
from lmi_backend.frontend.http.protocol import HEAD_BYTES, MOST_HEADERS, UNREAD_BYTES, WAITING_BYTES
from lmi_backend.json_text import MOST_VALUES
from lmi_backend.pool.rank_group import UNSENT_BYTES as UNSENT_TO_WORKER
from lmi_backend.serving.admission import OPEN_BYTES
from lmi_backend.shares import FREE_BYTES
from lmi_backend.supervisor.log_relay import BUFFER_BYTES as KEPT_LINES
from lmi_backend.worker.conversation import PAUSE_BYTES
from lmi_backend.worker.handlers.provided.djl_python.inputs import (
    MOST_VALUES as MOST_VALUES_OF_HANDLERS,
)
from lmi_backend.worker.outgoing import MOST_UNSENT
from tests.support.run.places import ROOT

PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        ("a head, a chunk's", f"{HEAD_BYTES >> 10} KiB, {MOST_HEADERS} headers"),
        ("pipelined requests", f"{WAITING_BYTES >> 10} KiB and one read"),
        (
            "bodies, until",
            f"{ALL_BODIES} times `--max-body`, without the first {FREE_BYTES >> 10} KiB",
        ),
        ("a compressed body", f"a window of {WINDOW_BYTES >> 20} MiB"),
        ("values of a JSON body", f"{MOST_VALUES:,}"),
        ("JSON, and texts that may be JSON", f"{MOST_TEXT >> 20} MiB"),
        ("an answer that its client does not read", f"{UNREAD_BYTES_OF_ONE >> 20} MiB"),
        ("an answer that its client does not read", f"{ALL_UNREAD_BYTES >> 20} MiB"),
        ("an answer that is buffered for a client", f"{BUFFERED_BYTES >> 20} MiB"),
        ("an answer that is buffered", f"{ALL_BUFFERED_BYTES >> 20} MiB a model"),
        ("what is written and not yet sent", f"{UNREAD_BYTES >> 20} MiB, looked at each second"),
        ("values of an OpenAI body", f"{MOST_VALUES:,}, or twice `max_model_len`; {MOST_ITEMS:,}"),
        ("pixels of decoded images", f"{TIMES} times `VLLM_MAX_IMAGE_PIXELS`"),
        ("pixels of decoded images", f"503 after {WAIT_SECONDS:g} s"),
        ("values of JSON in a tensor", f"{MOST_VALUES:,}"),
        ("values of a body of more than 256 KiB", f"{MOST_VALUES_OF_HANDLERS:,}"),
        ("output that a stub does not read", f"pauses from {PAUSE_BYTES >> 20} MiB on"),
        ("output that a stub does not read", f"{MOST_UNSENT >> 20} MiB"),
        ("requests that run or wait", f"{OPEN_BYTES >> 30} GiB"),
        (
            "requests that a worker does not",
            f"{UNSENT_TO_WORKER >> 20} MiB a worker and one request",
        ),
        ("answers that a front end does not read", f"{UNREAD_BYTES_OF_ONE >> 20} MiB"),
        ("answers that a front end does not read", f"{UNREAD_BYTES_IN_ALL >> 20} MiB"),
        ("lines of the log", f"{KEPT_LINES >> 20} MiB"),
    ],
)
def test_the_page_has_the_bounds_of_the_code(row: str, cell: str) -> None:
    _, _, table = PAGE.partition("\n| what is held | where |")
    (line,) = (each for each in table.splitlines() if each.startswith(f"| {row}"))
    assert re.search(rf"(?<![\w,]){re.escape(cell)}(?!\w)", line)
