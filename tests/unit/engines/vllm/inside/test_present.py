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


APPLIES = "class PunicaWrapperCPU:\n    def add_lora_logits(self, y, x): ...\n"


@pytest.mark.parametrize(
    ("uses", "lacking"),
    [
        ("self.punica_wrapper.add_lora_logits(\n logits)", []),
        (
            "self.punica_wrapper.add_logits(logits)",
            ["PunicaWrapperCPU.add_lora_logits (which nothing in vllm.lora calls)"],
        ),
    ],
)
def test_a_method_that_nothing_calls_any_more_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses: str, lacking: list[str]
) -> None:
    folder = tmp_path / "vllm" / "lora"
    folder.mkdir(parents=True)
    (folder / "punica_cpu.py").write_text(APPLIES, encoding="utf-8")
    (folder / "layers.py").write_text(uses, encoding="utf-8")
    vllm = Source(tmp_path / "vllm")
    for module in (names, present):
        monkeypatch.setattr(module, "installed", lambda: vllm)
    assert present.missing(["PunicaWrapperCPU.add_lora_logits"]) == lacking
