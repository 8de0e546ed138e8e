"""A vLLM whose needed names are there, and something else than they were."""

import asyncio
from types import SimpleNamespace

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


async def test_a_core_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "ANSWER_SECONDS", 0.01)
    engine = SimpleNamespace(get_supported_tasks=asyncio.Event().wait)
    with pytest.raises(
        ConfigurationError, match="get_supported_tasks does not end in 0 s; releases"
    ):
        await compat.answer_of(engine, "get_supported_tasks")


async def test_what_raises_is_named() -> None:
    async def get_tokenizer() -> None:
        raise LookupError("none")

    with pytest.raises(ConfigurationError) as caught:
        await compat.answer_of(SimpleNamespace(get_tokenizer=get_tokenizer), "get_tokenizer")
    assert "served: AsyncLLM.get_tokenizer raises LookupError: none" in str(caught.value)
    assert RELEASES in str(caught.value)


def test_what_raises_at_our_place_is_named_by_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "EngineCoreClient", None)
    with pytest.raises(ConfigurationError) as caught, compat.naming():
        compat.use_core_client(None)
    assert "`names.EngineCoreClient.make_async_mp_client" in str(caught.value)
    assert "raises AttributeError" in str(caught.value)


def test_a_name_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="served: no AsyncLLM; releases"), compat.naming():
        raise names.MissingNameError("no AsyncLLM")


def test_what_vllm_raises_by_itself_stays() -> None:
    with pytest.raises(TypeError, match="of a model"), compat.naming():
        exec("raise TypeError('of a model')", {})
