"""How many experts a model has, by config.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields


def count_experts(config: ConfigFields) -> int:
    """Return the routed experts of a layer; 0 if the model is dense."""
    names = ("num_local_experts", "num_experts", "n_routed_experts", "ffn_config.moe_num_experts")
    found = config.number(*names, "moe_num_experts", default=0, least=0)
    # One "expert" is how a family writes that a model is dense.
    return found if found > 1 else 0


def expert_width(config: ConfigFields) -> int:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    return config.number(*names, "ffn_config.ffn_hidden_size")


def vision_expert_share(config: ConfigFields) -> float:
    """Return how much the experts for images add to those for text: ERNIE's have another width."""
    widths = config.get("moe_intermediate_size")
    if not config.text("model_type").startswith("ernie"):
        # Hunyuan writes the width of each layer's.
        return 1.0
    if not isinstance(widths, list) or not all(isinstance(each, int) and each for each in widths):
        return 1.0
    return float(sum(widths) / max(widths)) if widths else 1.0


def experts_per_token(config: ConfigFields) -> int:
    names = ("num_experts_per_tok", "num_experts_per_token", "ffn_config.moe_top_k", "moe_topk")
    return config.number(*names, "moe_k", "top_k_experts", "experts_per_token", default=1)
