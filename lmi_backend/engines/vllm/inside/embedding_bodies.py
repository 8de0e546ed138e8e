"""Bodies of embeddings that may be of a known kind: what they have, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engines.vllm.inside.embedding_kind import EmbeddingKind
from lmi_backend.engines.vllm.inside.learnt_kinds import LearntKinds
from lmi_backend.outline import LARGE
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engines.vllm.inside.embedding_lessons import Input
    from lmi_backend.generation import HttpRequest

_MOST_BYTES: Final = 4096
"""Of a body besides its inputs."""
MOST_INPUTS: Final = 32
MOST_CHARACTERS: Final = 2048
"""Of all texts of a body: their tokens take 1 ms of the event loop."""
_MEMBERS: Final = frozenset({"model", "encoding_format", "dimensions", "user"})
"""Members of a body that change its parameters or how its answer is written, and nothing else."""
_FREE: Final = "user"
"""A string that changes nothing."""
_HEADERS: Final = frozenset({"x-request-id", "content-type"})
"""Headers whose values change nothing but the id."""
_WRITTEN: Final = (b'"float"', b'"base64"')
"""Ways to write vectors that are known; any other is of another answer."""
_NULL: Final = b"null"
_JSON: Final = "application/json"

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_inputs: Final = msgspec.json.Decoder(str | list[str | int | list[int]])
_value: Final = msgspec.json.decode


@dataclass(frozen=True)
class EmbeddingBody:
    """One body."""

    kind: EmbeddingKind
    inputs: list[Input]
    request_id: str
    """Empty if it has none."""
    model: Any
    """What the body names as its model."""


class EmbeddingBodies:
    """The kinds of bodies of one engine.

    Args:
        most_bytes: of all inputs; 0 if it is not known.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = min(most_bytes or LARGE, LARGE)
        self._kinds = LearntKinds(EmbeddingKind)

    def read(self, request: HttpRequest) -> EmbeddingBody | None:
        """Return a body if it is of a kind that can be known, else None."""
        if request.continuation is not None or len(request.body) > self._most_bytes:
            return None
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.keys() - _HEADERS or not _is_json(headers):
            return None
        try:
            return self._asked(_members.decode(request.body), headers.get("x-request-id", ""))
        except (*UNREADABLE, KeyError, TypeError, ValueError):
            return None

    def _asked(self, members: dict[str, msgspec.Raw], request_id: str) -> EmbeddingBody | None:
        """Return a body as `read` does.

        Raises:
            KeyError, TypeError, ValueError: it is of no such kind.
        """
        given = _inputs.decode(members.pop("input"))
        inputs = _as_list(given)
        # Numbers and texts are read in several ways.
        forms = {type(each) for each in inputs}
        if members.keys() - _MEMBERS or len(forms) != 1 or len(inputs) > MOST_INPUTS:
            return None
        if sum(len(each) for each in inputs if isinstance(each, str)) > MOST_CHARACTERS:
            return None
        if bytes(members.get("encoding_format", _WRITTEN[0])) not in _WRITTEN:
            return None
        if not isinstance(_value(members.pop(_FREE, msgspec.Raw(b'""'))), str):
            return None
        if sum(len(raw) for raw in members.values()) > _MOST_BYTES or not all(inputs):
            return None
        shape = given is inputs, forms == {str}, len(inputs)
        key = (bool(request_id), shape, *((name, bytes(raw)) for name, raw in members.items()))
        model = _value(members.get("model", _NULL))
        return EmbeddingBody(self._kinds.of(key), inputs, request_id, model)


def _as_list(given: str | list[Any]) -> list[Any]:
    """Return inputs one by one: a list of numbers is one."""
    if isinstance(given, str) or all(isinstance(each, int) for each in given):
        return [given]
    return given


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", _JSON).partition(";")[0].strip().lower() == _JSON
