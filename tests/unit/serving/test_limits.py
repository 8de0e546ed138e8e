"""What is taken at once."""

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.serving.limits import Limits
from lmi_backend.serving.service import Service
from lmi_backend.structures import StructureBounds
from tests.support.idle_workers import IdleWorkers


def _request(*choices: str) -> GenerateRequest:
    return GenerateRequest("a", Sampling(extra={"structured_outputs": {"choice": list(choices)}}))


def test_every_prompt_of_a_request_is_looked_at() -> None:
    limits = Limits(1, 1, 1, structures=StructureBounds(choices=2))
    limits.check_structures((_request("a"), GenerateRequest("b"), _request("a", "b")))
    with pytest.raises(RequestError, match=r"has 3 members in choice; accepted: at most 2 members"):
        limits.check_structures((_request("a"), _request("a", "b", "c")))


def test_a_grammar_beyond_the_bounds_takes_no_place() -> None:
    limits = Limits(1, 0, 60, structures=StructureBounds(choices=2))
    service = Service(IdleWorkers(), limits)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="max_structure_choices"):
        service.submit((_request("a", "b", "c"),), None)  # type: ignore[arg-type]
    assert service.snapshot().open == 0
