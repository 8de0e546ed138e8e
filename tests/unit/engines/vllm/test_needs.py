"""A vLLM whose needed names are there, and something else than they were."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import compat, names
from lmi_backend.errors import ConfigurationError

RELEASES = "releases that were run"


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "vllm_version", "0.99")


def test_what_lacks_a_member_is_refused_by_the_name_of_what_gave_it() -> None:
    app = SimpleNamespace(routes=[], state=None)
    assert compat.checked(app, "build_app", "routes", "state") is app
    with pytest.raises(ConfigurationError) as caught:
        compat.checked((app, None), "build_app", "routes", "state")
    assert "vLLM 0.99 cannot be served: build_app gives a tuple" in str(caught.value)
    assert "which has no routes, state" in str(caught.value)
    assert RELEASES in str(caught.value)


class _Config:
    max_model_len = 1
    model_config = None


def _engine(**changed: Any) -> Any:
    members = {"generate": len, "errored": False, "model_config": _Config, "vllm_config": _Config}
    return SimpleNamespace(**members | changed)


def test_an_engine_that_can_be_read_is_taken() -> None:
    engine = _engine()
    assert compat.checked_engine(engine) is engine


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        # Read as a value, a method is always true.
        ({"errored": lambda: False}, "AsyncLLM.errored is a function"),
        ({"model_config": lambda: _Config}, "AsyncLLM.model_config gives a function"),
        ({"vllm_config": lambda: _Config}, "AsyncLLM.vllm_config gives a function"),
        (
            {"model_config": SimpleNamespace(max_model_len=lambda: 1)},
            "ModelConfig.max_model_len is a function",
        ),
    ],
)
def test_a_method_where_a_value_was_is_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        compat.checked_engine(_engine(**changed))


async def _later(value: Any) -> Any:
    return value


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_may_be_a_coroutine(*, is_async: bool) -> None:
    tasks = ("generate",)
    engine = SimpleNamespace(get_supported_tasks=lambda: _later(tasks) if is_async else tasks)
    assert await compat.supported_tasks(engine) == tasks


@pytest.mark.parametrize("tasks", [(("generate",), None), None, 1])
async def test_tasks_that_are_no_words_are_refused(tasks: Any) -> None:
    engine = SimpleNamespace(get_supported_tasks=lambda: tasks)
    with pytest.raises(ConfigurationError, match="get_supported_tasks gives"):
        await compat.supported_tasks(engine)


async def test_a_core_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_ANSWER_SECONDS", 0.01)
    engine = SimpleNamespace(get_supported_tasks=asyncio.Event().wait)
    with pytest.raises(ConfigurationError, match="get_supported_tasks in 0 s; releases"):
        await compat.supported_tasks(engine)


async def test_what_raises_is_named() -> None:
    """A property that was a method gives what is then called."""
    with pytest.raises(ConfigurationError) as caught:
        await compat.answer_of(SimpleNamespace(get_tokenizer={}), "get_tokenizer")
    assert "served: AsyncLLM.get_tokenizer raises TypeError: 'dict'" in str(caught.value)
    assert RELEASES in str(caught.value)


def test_what_raises_at_our_place_is_named_by_the_line() -> None:
    with pytest.raises(ConfigurationError) as caught, compat.naming():
        compat.checked_engine(SimpleNamespace(generate=len, errored=False))
    assert "`checked(found.model_config," in str(caught.value)
    assert "raises AttributeError" in str(caught.value)


def test_a_name_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="served: no AsyncLLM; releases"), compat.naming():
        raise names.MissingNameError("no AsyncLLM")


def test_what_vllm_raises_by_itself_stays() -> None:
    with pytest.raises(TypeError, match="of a model"), compat.naming():
        exec("raise TypeError('of a model')", {})


async def test_tasks_that_can_be_read_once_are_read_once() -> None:
    engine = SimpleNamespace(get_supported_tasks=lambda: iter(("generate",)))
    assert await compat.supported_tasks(engine) == ("generate",)


@pytest.mark.parametrize("found", [_later(8), "8", None])
def test_a_vocabulary_that_is_no_number_is_refused(found: Any) -> None:
    config = SimpleNamespace(get_vocab_size=lambda: found)
    with pytest.raises(ConfigurationError, match="get_vocab_size gives a"):
        compat.vocabulary_size(config)
    if hasattr(found, "close"):
        found.close()
