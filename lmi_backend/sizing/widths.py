"""How wide MLPs and experts are, how large encoders are, and how many numbers rotate a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from lmi_backend.sizing.config_fields import ConfigFields, nested_fields
from lmi_backend.sizing.layer_kinds import ATTENTION_FREE
from lmi_backend.sizing.quantization import is_positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.sizing.kv_layers import WideAttention


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
    width = config.number(*names, "d_ff", "ffn_config.ffn_hidden_size", default=fallback)
    return _adjusted(config, width) if config.get("block_auto_adjust_ff_dim") is True else width


def _adjusted(config: ConfigFields, width: int) -> int:
    """Return what LFM2 makes of its width: two thirds, times a factor, up to a multiple."""
    factor = config.get("block_ffn_dim_multiplier")
    scaled = int(2 * width / 3 * (factor if is_positive(factor) and factor < _WIDEST else 1))
    step = config.number("block_multiple_of", default=1)
    return -(-scaled // step) * step


def _pruned(block: object, hidden: int) -> int:
    """Return the width of a layer of a pruned Nemotron; 0 if its MLP is gone or not written."""
    mlp = block.get("ffn") if isinstance(block, dict) else None
    if not isinstance(mlp, dict) or mlp.get("no_op") or mlp.get("replace_with_linear"):
        return 0
    if isinstance(ratio := mlp.get("ffn_mult"), int | float) and 0 < ratio < _WIDEST:
        return -(-int(2 * ratio * hidden / 3) // _STEP) * _STEP
    width = mlp.get("intermediate_size")
    return width if isinstance(width, int) and 0 < width < hidden * _WIDEST else 0


def count_experts(config: ConfigFields) -> int:
    """Return the routed experts of a layer; 0 if the model is dense."""
    names = ("num_local_experts", "num_experts", "n_routed_experts", "ffn_config.moe_num_experts")
    experts = config.number(*names, "moe_num_experts", default=0, least=0)
    # One "expert" is how a family writes that a model is dense.
    return experts if experts > 1 else 0


def expert_width(config: ConfigFields) -> int:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    return config.number(*names, "ffn_config.ffn_hidden_size")


def experts_per_token(config: ConfigFields) -> int:
    names = ("num_experts_per_tok", "num_experts_per_token", "ffn_config.moe_top_k", "moe_topk")
    return config.number(*names, "moe_k", "top_k_experts", "experts_per_token", default=1)


_OF_IMAGES = ("vision_config", "qformer_config")
_OF_SOUNDS = ("audio_config", "encoder_config")
_MOST_WIDTHS = 64
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
    if not (fields := nested_fields(place, name)):
        return 0
    tower = ConfigFields(config.file, fields, fields, f"{name}.")
    names = ("num_hidden_layers", "depth", "encoder_layers", "conf_num_hidden_layers", "num_layers")
    layers = tower.number(*names, default=0, least=0)
    layers += tower.number("num_global_layers", default=0, least=0)
    # Qwen2-VL's hidden_size is the language model's.
    width = tower.number("embed_dim", "hidden_size", "d_model", "hidden_dim", default=0, least=0)
    ratio = tower.get("mlp_ratio") or tower.get("feedforward_mult")
    widened = int(width * ratio) if is_positive(ratio) and ratio < _MOST_WIDTHS else 4 * width
    inner = tower.number("intermediate_size", "encoder_ffn_dim", default=max(widened, 1))
    kind = tower.text("model_type")
    if kind in _GLM:
        # Its intermediate_size is its projection's.
        inner = tower.number("out_hidden_size", default=inner)
    is_gated = tower.text("hidden_act") == "silu" or kind in _GATED_TOWERS
    matrices = 3 if is_gated else 2
    # A conformer's layer has two MLPs, and a convolution between them.
    is_conformer = kind in _CONFORMERS or "conv_kernel_size" in fields
    is_conformer |= "conf_conv_kernel_size" in fields
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


_VIDEO: Final = 4
"""vLLM keeps so many times the positions where a position has time, height and width."""
_WHOLE_LAYERS: Final = "full_attention"
_LARGEST: Final = 1024
"""Times that a file may plausibly stretch its positions."""


def rotated_numbers(config: ConfigFields, head_dim: int, wide: WideAttention | None) -> int:
    """Return the cosines and sines of one position, of all kinds of layers together.

    Layers with the same rotations share them; each kind of layer with its own has its own.
    """
    written = config.get("rope_parameters") or config.get("rope_scaling")
    parameters: Mapping[str, object] = written if isinstance(written, dict) else {}
    kinds = {name: each for name, each in parameters.items() if isinstance(each, dict)}
    if kinds:
        heads = {_WHOLE_LAYERS: wide.head_dim} if wide else {}
        rotated = {
            (heads.get(name, head_dim), str(sorted(each.items(), key=str))): _rotated(
                config, each, heads.get(name, head_dim)
            )
            for name, each in kinds.items()
        }
        return sum(rotated.values())
    own = _rotated(config, parameters, head_dim)
    # Layers with a window have their own, which are not stretched.
    return own + _rotated(config, {}, head_dim) if config.get("rope_local_base_freq") else own


def _rotated(config: ConfigFields, parameters: Mapping[str, object], head_dim: int) -> int:
    copies = _VIDEO if parameters.get("mrope_section") else 1
    kind = parameters.get("rope_type") or parameters.get("type")
    factor = parameters.get("factor")
    if kind == "linear" and _is_number(factor) and 1 < factor <= _LARGEST:
        # Stretched positions lie between the old ones: there are as many more of them.
        copies *= int(factor)
    if parameters.get("rope_type") == "proportional":
        # The part that is not rotated is kept as zeros.
        return copies * head_dim
    dim = parameters.get("rope_dim") or config.get("rotary_dim")
    if isinstance(dim, int) and not isinstance(dim, bool) and 0 < dim <= head_dim:
        return copies * dim
    shares = (parameters.get("partial_rotary_factor"), config.get("partial_rotary_factor"))
    share = next((each for each in shares if _is_number(each) and 0 < each <= 1), 1.0)
    return copies * int(head_dim * float(str(share)))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
