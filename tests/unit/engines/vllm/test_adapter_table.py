"""A table of adapters that vLLM's server shares, or is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import fast_paths
from lmi_backend.engines.vllm.lora import AdapterTable


class _Shares:
    def __init__(self) -> None:
        self.lora_requests: dict[str, Any] = {}


class _Copies:
    """Gives a copy, and takes no other."""

    @property
    def lora_requests(self) -> dict[str, Any]:
        return {}

    @lora_requests.setter
    def lora_requests(self, _: Any) -> None: ...


class _Refuses:
    @property
    def lora_requests(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("kind", "is_shared"), [(_Shares, True), (_Copies, False), (_Refuses, False)]
)
def test_the_table_is_shared_only_where_the_server_reads_it(
    monkeypatch: pytest.MonkeyPatch, kind: Any, is_shared: bool
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    known: dict[str, Any] = {}
    models = kind()
    AdapterTable(models, None, SimpleNamespace(known=known))  # type: ignore[arg-type]
    assert (models.lora_requests is known) == is_shared
    assert fast_paths.is_on("adapter_table") == is_shared


def test_an_adapter_is_found_by_its_name_from_when_it_is_known() -> None:
    known: dict[str, Any] = {}
    table = AdapterTable(_Shares(), None, SimpleNamespace(known=known))  # type: ignore[arg-type]
    assert not table.has("a")
    known["a"] = object()
    assert table.has("a")
    assert not any(table.has(name) for name in ("b", "", None, 5, ["a"]))
