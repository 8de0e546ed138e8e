"""What is known of each kind of client, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from lmi_backend.clients.failure import ErrorResponse
    from lmi_backend.clients.form import Form
    from lmi_backend.clients.reply import AdapterChange
    from lmi_backend.engine_config import Context
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import GenerateRequest, HttpRequest

Who = Literal["probe", "anybody", "client", "operator"]
"""Whose key a path needs, where keys are needed."""
PROBE: Final[Who] = "probe"
"""No key, and any name of the server: load balancers have their own."""
ANYBODY: Final[Who] = "anybody"
OPERATOR: Final[Who] = "operator"
RELAY: Final = "relay"
"""Action of a path whose bodies the engine's own server reads and answers."""
UPLOAD: Final = "relay upload"
"""Action of a path whose body is a file with fields, which the engine's own server reads."""
STORED: Final = "relay stored"
"""Action of a path without a body, that names what the engine's own server has."""
INVOKE: Final = "invoke"
"""Action of a path whose bodies are read as LMI's."""
READ: Final = "read"
"""Action of a path whose bodies the client's `read` reads, and whose answers it writes."""
TARGET: Final = "x-amzn-sagemaker-target-model"
"""The header by which clients that have no field for it name a model."""


class Read(NamedTuple):
    """What a body wants."""

    work: tuple[GenerateRequest, ...] | HttpRequest | AdapterChange
    form: Form
    """Makes a response of the answer."""
    tenant: str = ""
    """On whose behalf, as the request says."""
    failure: Callable[[LmiError], ErrorResponse] | None = None
    """Returns the response of an error that comes before anything else; else the client's does."""
    dropped: tuple[str, ...] = ()
    """Parameters that change nothing."""


def model_named(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Return the model that a body or a header names; empty if neither does."""
    return str(body.get("model") or headers.get(TARGET, ""))


@dataclass(frozen=True)
class Path:
    """A path on which a client sends requests."""

    template: str
    """With names in braces."""
    action: str
    """What answers there, as the front end calls it."""
    methods: str = "POST"
    """With blanks between."""
    who: Who = "client"
    takes_place: bool = False
    """Whether a request waits for its turn, and takes a place of the engine's."""
    counts_n: bool = False
    """Whether a request may have several answers, and takes a place for each."""
    can_resume: bool = False
    """Whether another worker can continue a stream: the same tokens make the same bytes."""
    by_tensor: bool = False
    """Whether a body may come as the tensor `request`, with the path as the tensor `path`."""
    read: Callable[[dict[str, Any], Context], Read] | None = None
    """Reads a body whose action is `READ`. Raises LmiError: it is wrong."""
    wrap: Callable[[Form], Form] | None = None
    """Makes the answer of what LMI's clients would get, where the action is `INVOKE`."""
    member: str = ""
    """Member of a body by which it is this client's, where the path is another client's too."""
    accept: str = "accept"
    """Header that says which content type is wanted."""


@dataclass(frozen=True, kw_only=True)
class ClientSpec:
    """A kind of client."""

    name: str
    """Of its folder."""
    title: str
    """In documents."""
    order: int
    """Among the other clients, in documents."""
    paths: tuple[Path, ...]
    failure: Callable[[LmiError], ErrorResponse]
    """Returns the response of an error that comes before anything else."""
    form: Callable[[], Form]
    """Makes a response of what an HTTP application answers, errors in the middle included."""
    model_named: Callable[[Mapping[str, Any], Mapping[str, str]], str] = model_named
    """Returns the model that a body or its headers name; empty if none is named."""
