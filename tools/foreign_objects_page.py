"""docs/foreign-objects.md: where this package depends on the inside of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lmi_backend.engines.vllm.names import NAMES

_HEAD: Final = """# Inside other programs

*For contributors: each place that depends on the inside of another program, and its reason.*

Other programs change without notice. So each such place is on this page, is probed where it is
used, and has a slower public way or a clear error. A new one needs a row here."""
_VLLM: Final = """
## vLLM

All of this is in `lmi_backend/engines/vllm/`, and no other folder imports vLLM.
[What is added inside it](engines.md#fast-paths-inside-vllm) has a table of its own. These are the
names of vLLM that are imported, with the modules that have had them since 0.11. A model that needs
one which its vLLM lacks does not start, and the error has the name.

| name | modules, the newest first |
| --- | --- |"""
_OTHERS: Final = """
## Other programs

| program | place | what it does | reason | when it fails |
| --- | --- | --- | --- | --- |"""


class Place(NamedTuple):
    """A place that depends on the inside of a program."""

    program: str
    module: str
    """Below lmi_backend/."""
    what: str
    why: str
    fails: str


PLACES: Final = (
    Place(
        "tritonserver",
        "supervisor/private_arguments.py",
        "replaces an argument in its memory before its first instruction (ptrace)",
        "any user may read a command line, and the key of its restricted APIs is an argument",
        "`serve` logs a warning and starts it with the key in its arguments",
    ),
    Place(
        "tritonserver",
        "supervisor/enforced_umask.py",
        "lets `fchmod(fd, 0644)` change nothing (seccomp)",
        "Boost makes its shared memory readable for all users",
        "the umask applies to files only; the stub closes its own memory itself",
    ),
    Place(
        "tritonserver",
        "supervisor/send_buffers.py",
        "makes the buffers of its socket pairs larger (pidfd)",
        "libevhtp drops a response when such a buffer is full",
        "a warning names the sysctl that does the same",
    ),
    Place(
        "stub of Triton",
        "triton/orphan_guard.py",
        "kills the stub when its parent has died",
        "a stub without its server may never exit",
        "the stub and its workers stay until they are killed",
    ),
    Place(
        "stub of Triton",
        "triton/server_process.py",
        "reads the arguments of its parent, and closes shared memory to other users",
        "Triton tells a stub neither",
        "a warning; requests take the slower road through Triton",
    ),
    Place(
        "uvicorn",
        "frontend/http/protocol.py",
        "subclasses `HttpToolsProtocol` and `FlowControl`",
        "uvicorn bounds neither headers, nor the time for them, nor what a client leaves unread",
        "no public way; `tests/unit/frontend/http/test_protocol.py` shows it",
    ),
    Place(
        "uvicorn",
        "frontend/http/client.py",
        "reads and sets fields of `RequestResponseCycle`",
        "a message of ASGI for each part costs more than the part",
        "as above",
    ),
    Place(
        "uvicorn",
        "frontend/http/server.py",
        "subclasses `Server`",
        "uvicorn allows a minute for a TLS handshake, and repeats the signal that stops it",
        "as above",
    ),
    Place(
        "Python's logging",
        "frontend/http/log.py",
        "sets `logging._srcfile` to None",
        "no line shows its source, and logging looks for it each time",
        "lines cost more",
    ),
    Place(
        "TensorRT-LLM",
        "engines/trtllm/compat.py",
        "imports its names, which `tests/data/signatures/trtllm.json` records",
        "its modules move between releases",
        "the model does not start, and the error has the name",
    ),
)


def foreign_objects_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield _HEAD
    yield _VLLM
    for name, entry in NAMES.items():
        places = "<br>".join(f"`{place.removesuffix(':*')}`" for place in entry.places)
        yield f"| `{name}` | {places} |"
    yield _OTHERS
    for place in PLACES:
        module = f"`lmi_backend/{place.module}`"
        yield f"| {place.program} | {module} | {place.what} | {place.why} | {place.fails} |"
