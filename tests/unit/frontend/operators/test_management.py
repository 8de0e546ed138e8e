"""DJLServing's management API, over a repository that is not there."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import HttpError
from lmi_backend.frontend.model_control import RepositoryModel
from lmi_backend.frontend.operators.management import Management
from tests.support.doubles.looking import NotedAnswer

LOADED = {f"m{number}": RepositoryModel("READY", "") for number in (3, 1, 4, 2, 0)}
OTHERS = {
    "never": RepositoryModel("", ""),
    "ended": RepositoryModel("UNAVAILABLE", "unloaded"),
    "wrong": RepositoryModel("UNAVAILABLE", "no memory"),
    "begun": RepositoryModel("LOADING", ""),
}


async def listed(query: str, index: dict[str, RepositoryModel]) -> Any:
    async def index_of() -> dict[str, RepositoryModel]:
        return index

    control: Any = SimpleNamespace(index=index_of)
    models: Any = SimpleNamespace()
    exchange: Any = NotedAnswer(query)
    await Management(models, control).list(exchange)
    return exchange.answer


@pytest.mark.parametrize(
    ("query", "names", "following"),
    [
        ("", ["m0", "m1", "m2", "m3", "m4"], None),
        ("limit=2", ["m0", "m1"], "2"),
        ("limit=2&next_page_token=2", ["m2", "m3"], "4"),
        ("limit=2&next_page_token=3", ["m3", "m4"], None),
        ("limit=2&next_page_token=4", ["m4"], None),
        ("limit=5", ["m0", "m1", "m2", "m3", "m4"], None),
        ("limit=0", ["m0"], "1"),
        ("next_page_token=999999999", [], None),
    ],
)
async def test_the_list_comes_in_pages(query: str, names: list[str], following: str | None) -> None:
    body = await listed(query, LOADED)
    assert [model["modelName"] for model in body["models"]] == names
    assert body.get("nextPageToken") == following


async def test_a_page_has_a_hundred_models_if_nobody_says() -> None:
    body = await listed("", {str(number): RepositoryModel("READY", "") for number in range(101)})
    assert (len(body["models"]), body["nextPageToken"]) == (100, "100")


async def test_the_list_has_what_is_loaded_or_failed() -> None:
    body = await listed("", OTHERS)
    assert [(each["modelName"], each["status"]) for each in body["models"]] == [
        ("begun", "PENDING"),
        ("wrong", "FAILED"),
    ]


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "next_page_token=1234567890", "page=1"])
async def test_what_is_no_page_is_refused(query: str) -> None:
    with pytest.raises(HttpError) as refused:
        await listed(query, LOADED)
    assert refused.value.status == 400
