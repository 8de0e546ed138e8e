import runpy

import pytest

from lmi_backend import garbage


@pytest.mark.parametrize(("name", "calls"), [("__mp_main__", 1), ("lmi_backend.worker.main", 0)])
def test_processes_that_an_engine_spawns_expect_growth_too(
    monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(garbage, "expect_growth", lambda: seen.append(1))
    runpy.run_module("lmi_backend.worker.main", run_name=name)
    assert len(seen) == calls
