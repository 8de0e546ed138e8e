"""How wide the MLP of a layer is, by config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.sizing.layer_kinds import ATTENTION_FREE
from lmi_backend.sizing.module_bits import is_positive

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields

_STEP = 256
"""A pruned Nemotron's widths are multiples of it."""
_WIDEST = 100
# Families whose MLP is two matrices; all others gate it with a third.
PLAIN_MLP = frozenset(
    {
        "apertus", "arcee", "bart", "biogpt", "bloom", "codegen", "cosmos3_edge_text", "ctrl",
        "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj",
        "jais2", "m2m_100", "mbart", "mpt", "nanochat", "nemotron", "nemotron_h", "openai-gpt",
        "opt", "pegasus", "persimmon", "phi", "refinedweb", "refinedwebmodel", "starcoder2",
        "whisper", "xglm",
    }
)  # fmt: skip


def mlp_width(config: ConfigFields, hidden: int) -> int:
    """Return the width of a dense layer's MLP; where all have experts, of one of them."""
    if isinstance(blocks := config.get("block_configs"), list) and blocks:
        widths = [_pruned(block, hidden) for block in blocks]
        if mean := sum(widths) // len(widths):
            return mean
    names = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim")
    fallback = None
    if config.text("model_type").lower() in PLAIN_MLP | ATTENTION_FREE:
        ratio = config.number("expansion_ratio", default=4)
        fallback = ratio * hidden
    if config.get("intermediate_size_mlp") is not None:
        # Llama-4's intermediate_size is an expert's.
        return config.number("intermediate_size_mlp")
    if config.get("dense_intermediate_size") is not None:
        return config.number("dense_intermediate_size")
    if fallback is None and config.get("moe_intermediate_size") is not None:
        # Where all layers have experts some families write no other width.
        fallback = config.number("moe_intermediate_size")
    found = config.number(*names, "d_ff", "ffn_config.ffn_hidden_size", default=fallback)
    return _adjusted(config, found) if config.get("block_auto_adjust_ff_dim") is True else found


def _adjusted(config: ConfigFields, width: int) -> int:
    """Return what LFM2 makes of its width: two thirds, times a factor, up to a multiple."""
    factor = config.get("block_ffn_dim_multiplier")
    scaled = int(2 * width / 3 * (factor if is_positive(factor) and factor < _WIDEST else 1))
    step = config.number("block_multiple_of", default=1)
    return -(-scaled // step) * step


def _pruned(block: object, hidden: int) -> int:
    """Return the width of a layer of a pruned Nemotron; 0 if its MLP is gone or not written."""
    found = block.get("ffn") if isinstance(block, dict) else None
    if not isinstance(found, dict) or found.get("no_op") or found.get("replace_with_linear"):
        return 0
    if isinstance(ratio := found.get("ffn_mult"), int | float) and 0 < ratio < _WIDEST:
        return -(-int(2 * ratio * hidden / 3) // _STEP) * _STEP
    width = found.get("intermediate_size")
    return width if isinstance(width, int) and 0 < width < hidden * _WIDEST else 0
