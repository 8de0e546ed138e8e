"""vLLM's cores find our plugin, and its second model runner, which needs a GPU, can call it."""

from pathlib import Path
from typing import Any

from tests.support.interpreter.releases import vllm_release

FOUND = """
from types import SimpleNamespace
from lmi_backend.engines.vllm import resume, starting
starting.install_plugin("forced_tokens")
from vllm.v1.sample.logits_processor import _load_custom_logitsprocs
assert resume.ForcedTokens in _load_custom_logitsprocs(None)
for drafts in (None, "ngram"):
    config = SimpleNamespace(speculative_config=drafts)
    print(drafts, resume.takes_forced_ids(SimpleNamespace(vllm_config=config)))
"""
CALLED = """
import numpy as np
import torch
from lmi_backend.engines.vllm import resume, starting
starting.install_plugin("forced_tokens")
from vllm.v1.worker.gpu.sample.logits_processor import loader
(made,) = [each for each in loader._load_v2_logitsprocs(None) if each is resume.ForcedTokens]
prompts = SimpleNamespace(np=np.array([3, 5, 4]))
plugin = made(None, SimpleNamespace(prompt_len=prompts))
params = SimpleNamespace(extra_args=None)
assert plugin.add_request(0, params) is False
params.extra_args = resume.forced_args(params, [7, 2])
assert plugin.add_request(2, params) is True
chosen = []
for step in range(-1, 3):
    ctx = SimpleNamespace(
        idx_mapping_np=np.array([0, 2]), seq_lens_upper_bound_np=np.array([3, 4 + step])
    )
    logits = torch.zeros(2, 9)
    logits[:, 5] = 1.0
    chosen.append(plugin.apply(logits, ctx).argmax(dim=1).tolist())
print(chosen)
# The place is another's now.
assert plugin.add_request(2, SimpleNamespace(extra_args=None)) is False
assert plugin.apply(torch.ones(2, 9), ctx).eq(1).all()
"""


def test_the_plugin_is_found_and_can_be_called(vllm_interpreter: Any, tmp_path: Path) -> None:
    # Older releases' second runner takes no plugins.
    script = tmp_path / "script.py"
    is_called = vllm_release() >= (0, 32)
    script.write_text(FOUND + CALLED if is_called else FOUND)
    lines = vllm_interpreter.run(str(script)).decode().splitlines()
    assert lines[:2] == ["None True", "ngram False"]
    assert lines[2:] == ["[[5, 5], [5, 7], [5, 2], [5, 5]]"] * is_called
