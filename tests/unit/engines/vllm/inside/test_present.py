"""What of the table of fast paths a vLLM lacks, by its source."""

from pathlib import Path

import pytest

from lmi_backend.engines.vllm.inside import names, present
from lmi_backend.engines.vllm.inside.source import Source

CLEANS = "def sanitize_message(message): ..."


@pytest.mark.parametrize(
    ("version", "source", "lacking"),
    [
        # These releases look for nothing in an error, so there is nothing to cut.
        ("0.13.0", "", []),
        ("0.15.1", "", []),
        ("0.15.1", CLEANS, []),
        ("0.16.0", CLEANS, []),
        ("0.16.0", "", ["sanitize_message"]),
        ("0.34.0", CLEANS.replace("sanitize", "clean"), ["sanitize_message"]),
        # A build without tags does not say how new it is.
        ("0.1.dev1+gabc", "", ["sanitize_message"]),
        ("", "", ["sanitize_message"]),
    ],
)
def test_a_release_before_a_name_does_not_lack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, source: str, lacking: list[str]
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "utils.py").write_text(source, encoding="utf-8")
    vllm = Source(tmp_path / "vllm")
    for module in (names, present):
        monkeypatch.setattr(module, "installed", lambda: vllm)
    monkeypatch.setattr(present, "installed_version", lambda *_: version)
    assert present.missing(["sanitize_message"]) == lacking
