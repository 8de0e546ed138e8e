"""Which models of a start are awaited, and until when."""

from collections.abc import Callable, Mapping

import pytest

from lmi_backend.errors import HttpError, LmiError, UnavailableError
from lmi_backend.frontend.model_control import RepositoryModel
from lmi_backend.frontend.models import Starting

NAMES = ("a", "b")


class Index:
    """What Triton says of its repository."""

    def __init__(self, **states: str) -> None:
        self.states: Mapping[str, str] = states
        self.error: LmiError | None = None
        self.num_asked = 0
        self.reason = "it cannot be loaded"

    async def __call__(self) -> dict[str, RepositoryModel]:
        self.num_asked += 1
        if self.error is not None:
            raise self.error
        return {name: RepositoryModel(state, self.reason) for name, state in self.states.items()}


async def awaited(index: Index, *then: Callable[[Starting], None]) -> list[str]:
    starting = Starting(NAMES, index)
    for change in then:
        change(starting)
    await starting.look()
    return starting.loading


async def test_a_model_is_awaited_until_it_is_there() -> None:
    index = Index(a="READY", b="LOADING")
    assert await awaited(index) == ["a", "b"]
    assert await awaited(index, lambda each: each.note_ready("a")) == ["b"]
    index.error = UnavailableError("Triton's port is opened when all are loaded")
    assert await awaited(index) == ["a", "b"]


@pytest.mark.parametrize("index", [Index(a="LOADING", b="UNAVAILABLE"), Index(a="READY", b=""),
                                   Index(a="UNLOADING")])  # fmt: skip
async def test_one_that_failed_or_was_unloaded_is_not(index: Index) -> None:
    assert await awaited(index) == ["a"]


async def test_one_that_failed_is_told_with_its_reason_until_it_is_there() -> None:
    index = Index(a="READY", b="UNAVAILABLE")
    index.reason = "Internal: TritonModelException: no such folder\n\nAt:\n  a"
    starting = Starting(NAMES, index)
    starting.note_ready("a")
    await starting.look()
    assert (starting.loading, starting.failed) == ([], {"b": "no such folder"})
    # It is tried again: meanwhile it is as it was.
    for state in ("UNAVAILABLE", "LOADING"):
        index.states = {"a": "READY", "b": state}
        await starting.look()
        assert (starting.loading, starting.failed) == ([], {"b": "no such folder"})
    index.states = {"a": "READY", "b": "READY"}
    await starting.look()
    assert (starting.loading, starting.failed) == (["b"], {})


async def test_nobody_is_asked_once_all_are_there_and_triton_listens() -> None:
    index = Index(a="READY", b="READY")
    starting = Starting(NAMES, index)
    for name in NAMES:
        starting.note_ready(name)
    index.error = UnavailableError("Triton's port is opened when all are loaded")
    await starting.look()
    assert (starting.loading, starting.is_open) == ([], False)
    index.error = None
    await starting.look()
    assert starting.is_open
    index.num_asked = 0
    await starting.look()
    assert index.num_asked == 0
    # The server that answers now goes with its model.
    starting.lost("b")
    await starting.look()
    assert not starting.is_open
    starting.note_ready("b")
    await starting.look()
    assert starting.is_open


async def test_next_to_others_servers_what_has_failed_is_known_until_it_has_not() -> None:
    index = Index(a="READY", b="UNAVAILABLE")
    starting = Starting((), index)
    await starting.look()
    assert (starting.failed, starting.is_open) == ({"b": "it cannot be loaded"}, True)
    index.reason = "unloaded"
    await starting.look()
    assert not starting.failed
    index.error = HttpError(501, "a key is needed")
    await starting.look()
    index.error, index.num_asked = None, 0
    await starting.look()
    assert index.num_asked == 0


async def test_where_triton_does_not_tell_none_is_awaited() -> None:
    index = Index()
    index.error = HttpError(501, "a key is needed")
    assert not await awaited(index)


async def test_one_that_died_is_awaited_again_where_a_supervisor_says_what_it_loads() -> None:
    index = Index(a="READY", b="READY")
    found = [lambda each, name=name: each.note_ready(name) for name in NAMES]
    assert await awaited(index, *found, lambda each: each.lost("b")) == ["b"]
    alone = Starting()
    alone.lost("b")
    assert not alone.loading
