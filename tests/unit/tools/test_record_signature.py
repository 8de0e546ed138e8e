from collections.abc import Iterator
from pathlib import Path

import pytest
import record_signature
from record_signature import differences

from lmi_backend.options import signature
from lmi_backend.options.signature import records


def test_a_release_is_recorded_by_what_differs_from_its_neighbour() -> None:
    newer = {"arguments": {"a": ["int", "1"], "b": ["str", "''"]}, "listener": ["port", "host"]}
    older = {"arguments": {"a": ["int", "2"], "c": ["bool", "False"]}, "listener": ["port", "uds"]}
    # A default alone is for people; what is gone is null.
    assert differences(newer, older) == {
        "arguments": {"b": None, "c": ["bool", "False"]},
        "listener": [["uds"], ["host"]],
    }
    words = ({"words": {"load": ["auto", "pt"]}}, {"words": {"load": ["auto", "np"]}})
    assert differences(*words) == {"words": {"load": ["auto", "np"]}}


@pytest.fixture
def _fresh_records() -> Iterator[None]:
    records.cache_clear()
    yield
    records.cache_clear()


@pytest.mark.usefixtures("_fresh_records")
def test_what_is_recorded_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"0.1.0": ["int", "1"], "0.2.0": ["str", "''"], "0.3.0": ["bool", "False"]}
    releases = {
        version: {
            "engine": "vllm",
            "version": version,
            "listener": [version, "host"],
            "arguments": {"model": ["str", "''"], "of_all": kind, f"only_{version}": kind},
        }
        for version, kind in kinds.items()
    }
    monkeypatch.setattr(record_signature, "OWN", tmp_path / "vllm.json")
    monkeypatch.setattr(record_signature, "OTHERS", tmp_path / "vllm_others.json")
    monkeypatch.setattr(signature, "RECORDS", tmp_path)
    record_signature.write(releases, "0.2.0")
    found = dict(records("vllm"))
    assert list(found) == ["0.2.0", "0.3.0", "0.1.0"]
    assert found == releases
