import json
from pathlib import Path

import pytest

from lmi_backend.cli.main import main

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
COUNTED = "draft model {}: counted: 2.8 GiB weights and the cache of 2 layer(s); not counted: what"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for folder, layers in (("", 32), ("small", 2), ("eagle", 2)):
        config = {**LLAMA, "num_hidden_layers": layers, "num_nextn_predict_layers": 1}
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        ('speculative_config={"model": "SMALL", "num_speculative_tokens": 3}', COUNTED),
        ("speculative_draft_model=SMALL", COUNTED),
        ('speculative_config={"model": "EAGLE"}', "draft model {}: counted: 832.0 MiB weights and"),
        ('speculative_config={"method": "mtp"}', "1 MTP layer(s) of the model: counted: 480.0 MiB"),
        ('speculative_config={"method": "odd"}', "1 MTP layer(s) of the model: counted"),
        (
            'speculative_config={"model": "org/none"}',
            "draft model org/none: not counted: its weights and cache: org/none: config.json",
        ),
        (
            'speculative_config={"model": "SMALL", "method": "medusa"}',
            "draft model {}: not counted: the weights of a medusa",
        ),
        ('speculative_config={"method": "ngram", "prompt_lookup_max": 3}', ""),
        ("ngram_prompt_lookup_max=3", ""),
    ],
)
def test_what_is_counted_of_a_draft_model_is_said(
    speculation: str,
    said: str,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    draft = model / ("eagle" if "EAGLE" in speculation else "small")
    text = speculation.replace("SMALL", str(draft)).replace("EAGLE", str(draft))
    (model / "serving.properties").write_text(f"option.{text}\n", encoding="utf-8")
    machine = ("--gpus", "1", "--gpu-memory", "80GiB")
    for form, words in (((), "because     "), (("--explain-memory",), "beside the log: ")):
        assert main(["plan", str(model), *machine, *form]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "not counted" in line]
        assert len(lines) == bool(said)
        assert "".join(lines).startswith(said and words + said.format(draft))
