"""Count the parameters of encoders of images and sounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.sizing.config_fields import ConfigFields, nested_fields
from lmi_backend.sizing.module_bits import is_positive

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_IMAGES = ("vision_config", "qformer_config")
_OF_SOUNDS = ("audio_config", "encoder_config")
_WIDEST = 64
"""Times its width that an MLP has, at most."""
_GLM = frozenset({"glm4v_vision", "glm4v_moe_vision"})
_GATED_TOWERS = frozenset({"gemma4_vision", "pixtral", *_GLM})
_CONFORMERS = frozenset({"gemma4_audio"})
_JOINED = {"internvl": 4, "voxtral": 4, "glmasr": 4, "llava": 1, "llava_next": 1, "mistral3": 1}
"""Parts of an image or sound that a family's projection of two matrices takes together."""


def count_encoder_parameters(config: ConfigFields, hidden: int) -> tuple[int, int]:
    """Count the parameters of encoders of images and of sounds, with their projections."""
    # Models that speak keep them beside the text model of the part that thinks.
    places = (config.outer, nested_fields(config.outer, "thinker_config"))
    images, sounds = (
        sum(_tower(config, place, name, hidden) for place in places for name in names)
        for names in (_OF_IMAGES, _OF_SOUNDS)
    )
    return images, sounds


def _tower(config: ConfigFields, place: Mapping[str, object], name: str, hidden: int) -> int:
    if not (found := nested_fields(place, name)):
        return 0
    tower = ConfigFields(config.file, found, found, f"{name}.")
    names = ("num_hidden_layers", "depth", "encoder_layers", "conf_num_hidden_layers", "num_layers")
    layers = tower.number(*names, default=0, least=0)
    layers += tower.number("num_global_layers", default=0, least=0)
    # Qwen2-VL's hidden_size is the language model's.
    width = tower.number("embed_dim", "hidden_size", "d_model", "hidden_dim", default=0, least=0)
    ratio = tower.get("mlp_ratio") or tower.get("feedforward_mult")
    widened = int(width * ratio) if is_positive(ratio) and ratio < _WIDEST else 4 * width
    inner = tower.number("intermediate_size", "encoder_ffn_dim", default=max(widened, 1))
    kind = tower.text("model_type")
    if kind in _GLM:
        # Its intermediate_size is its projection's.
        inner = tower.number("out_hidden_size", default=inner)
    is_gated = tower.text("hidden_act") == "silu" or kind in _GATED_TOWERS
    matrices = 3 if is_gated else 2
    # A conformer's layer has two MLPs, and a convolution between them.
    is_conformer = kind in _CONFORMERS or "conv_kernel_size" in found
    is_conformer |= "conf_conv_kernel_size" in found
    mlps = (1 + is_conformer) * matrices * width * inner
    heads = tower.number("num_attention_heads", "num_heads", default=1)
    shared = tower.number("num_key_value_heads", default=heads) / heads
    convolution = 3 * width**2 if kind in _CONFORMERS else 0
    layer = int((2 + 2 * shared) * width**2) + mlps + convolution
    joined = _JOINED.get(str(config.outer.get("model_type")), 0)
    return layers * layer + _projection(tower, width, hidden, joined)


def _projection(tower: ConfigFields, width: int, hidden: int, joined: int) -> int:
    """Return the parameters of what makes an encoder's output a language model's input."""
    merged = width * tower.number("spatial_merge_size", default=0, least=0) ** 2
    out = tower.number("out_hidden_size", default=hidden)
    taken = tower.get("deepstack_visual_indexes")
    if tower.text("model_type") in _GLM:
        # A matrix, then a gated MLP.
        inner = tower.number("intermediate_size", default=out)
        return merged * out + out * (out + 3 * inner)
    if joined:
        return joined * width * hidden + hidden**2
    copies = 1 + (len(taken) if isinstance(taken, list) else 0)
    return copies * merged * (merged + out) if merged else width * hidden
