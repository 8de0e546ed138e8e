"""How many layers a model has, and what each has: attention, a state, one MLP, experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.sizing.config_fields import ConfigFields


ATTENTION_FREE: Final = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv"})
"""Model types without a key-value cache."""
BOTH_MIXERS: Final = frozenset({"falcon_h1"})
"""Model types whose layers have attention and a state each."""
_LETTERS: Final = {"*": "attention", "M": "mamba", "E": "moe", "-": "mlp"}
_WITHOUT_MIXER: Final = frozenset({"moe", "mlp"})
_LISTS: Final = ("layers_block_type", "layer_types", "hybrid_override_pattern")


def named_kinds(config: ConfigFields, num_layers: int) -> Sequence[str] | None:
    """Return the name that config.json has for each layer's kind; None if it has none."""
    for name in _LISTS:
        kinds = config.get(name)
        if isinstance(kinds, str) and kinds:
            return [_LETTERS.get(letter, "") for letter in kinds[:num_layers]]
        if isinstance(kinds, list) and kinds and all(isinstance(each, str) for each in kinds):
            return kinds[:num_layers]
    return None


def is_attention(kind: str) -> bool:
    """Say whether a layer called so has a cache ("full_attention", "hybrid", "mamba", …)."""
    return kind.startswith("hybrid") or ("attention" in kind and not kind.startswith("linear"))


def mixers(config: ConfigFields, num_layers: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the layers with attention and those with a state."""
    every = tuple(range(num_layers))
    family = config.text("model_type")
    if family in ATTENTION_FREE:
        return (), every
    if family in BOTH_MIXERS:
        return every, every
    counted = None
    kinds = named_kinds(config, num_layers)
    if not kinds and (counted := _counted(config, num_layers)) is None:
        kinds = config.usual_kinds(num_layers)
    if kinds:
        pairs = list(enumerate(kinds))
        attention = tuple(at for at, kind in pairs if is_attention(kind))
        others = (at for at, kind in pairs if kind and kind not in _WITHOUT_MIXER)
        return attention, tuple(at for at in others if at not in attention)
    attention = every if counted is None else counted
    if config.get("block_configs"):
        # What was pruned has nothing in its place.
        return attention, ()
    return attention, tuple(at for at in every if at not in attention)


def _counted(config: ConfigFields, num_layers: int) -> tuple[int, ...] | None:
    """Return the layers with attention by numbers in config.json; None if it has none."""
    # These number layers from one.
    if isinstance(full := config.get("linear_attn_config.full_attn_layers"), list):
        return tuple(at - 1 for at in full if isinstance(at, int) and at <= num_layers)
    for name in ("attn_layer_indices", "full_attn_idxs"):
        if isinstance(indices := config.get(name), list):
            return tuple(at for at in indices if isinstance(at, int))
    if isinstance(types := config.get("attn_type_list"), list) and types:
        return tuple(at for at, kind in enumerate(types[:num_layers]) if kind == 1)
    if isinstance(blocks := config.get("block_configs"), list) and blocks:
        return tuple(at for at, block in enumerate(blocks[:num_layers]) if _has_attention(block))
    return _periodic(config, num_layers)


def _periodic(config: ConfigFields, num_layers: int) -> tuple[int, ...] | None:
    if period := config.number("attn_layer_period", "full_attention_interval", default=0):
        # Jamba counts from an offset, Qwen3-Next takes the last layer of each period.
        offset = config.number("attn_layer_offset", default=period - 1, least=0)
        return tuple(range(offset, num_layers, period))
    return None


def _has_attention(block: object) -> bool:
    """Say whether a block of a pruned Nemotron still has its attention."""
    attention = block.get("attention") if isinstance(block, dict) else None
    return not (isinstance(attention, dict) and attention.get("no_op"))


def pruned_group(config: ConfigFields) -> int:
    """Return how many heads share a key in a pruned Nemotron's layers with attention, else 1."""
    blocks = config.get("block_configs")
    for block in blocks if isinstance(blocks, list) else ():
        attention = block.get("attention") if isinstance(block, dict) else None
        heads = attention.get("n_heads_in_group") if isinstance(attention, dict) else None
        if isinstance(heads, int) and not isinstance(heads, bool) and heads > 0:
            return heads
    return 1


def feed_forwards(
    config: ConfigFields, num_layers: int, experts: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the layers with one MLP for all tokens and those with experts."""
    every = tuple(range(num_layers))
    kinds = named_kinds(config, num_layers)
    if kinds and _WITHOUT_MIXER & set(kinds):
        dense = tuple(at for at, kind in enumerate(kinds) if kind == "mlp")
        return dense, tuple(at for at, kind in enumerate(kinds) if kind == "moe")
    if config.text("model_type") in ATTENTION_FREE:
        return (), ()
    if not experts:
        return every, ()
    if config.get("enable_moe_block") is True:
        return every, every
    chosen = _with_experts(config, num_layers)
    return tuple(at for at in every if at not in chosen), chosen


def _with_experts(config: ConfigFields, num_layers: int) -> tuple[int, ...]:
    every = range(num_layers)
    if isinstance(only := config.get("mlp_only_layers"), list) and only:
        return tuple(at for at in every if at not in only)
    if isinstance(words := config.get("mlp_layer_types"), list) and words:
        return tuple(at for at, word in enumerate(words[:num_layers]) if word != "dense")
    if isinstance(chosen := config.get("moe_layers"), list):
        return tuple(at for at in chosen if isinstance(at, int) and at < num_layers)
    if isinstance(written := config.get("moe_layer_freq"), list):
        return tuple(at for at, has in enumerate(written[:num_layers]) if has)
    numbered = config.get("moe_layers_enum")
    if isinstance(numbered, str) and numbered.replace(",", "").isdigit():
        return tuple(at for at in map(int, numbered.split(",")) if at < num_layers)
    starts = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    first = config.number(*starts, default=0, least=0)
    names = ("decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period",
             "moe_layer_interval")  # fmt: skip
    period = config.number(*names, default=1)
    last = config.get("moe_layer_end_index")
    end = num_layers
    if isinstance(last, int) and not isinstance(last, bool) and 0 < last < num_layers:
        end = last + 1
    offset = config.number("expert_layer_offset", default=period - 1, least=0)
    return tuple(range(first, end))[offset % period :: period]


T5: Final = frozenset({"t5", "mt5", "umt5"})
"""Model types of the T5 family, whose positions are relative."""
_MOST_LAYERS: Final = 1024


def is_encoder_decoder(config: ConfigFields) -> bool:
    """Tell whether a part of the layers reads the prompt, and another writes the answer."""
    return config.flag("is_encoder_decoder", default=config.text("model_type").lower() in T5)


def count_layers(config: ConfigFields) -> tuple[int, int]:
    """Return the number of all layers and of those in the decoder."""
    layers, decoder = _written_layers(config)
    if layers > _MOST_LAYERS:
        # Each is looked at by itself.
        raise config.error("num_hidden_layers", layers, f"is more than {_MOST_LAYERS} layers")
    return layers, decoder


def _written_layers(config: ConfigFields) -> tuple[int, int]:
    if not is_encoder_decoder(config):
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        kinds = config.get("layers_block_type")
        listed = len(kinds) if isinstance(kinds, list) and kinds else None
        layers = config.number(*names, default=listed)
        return layers, layers
    encoder = config.number("num_layers", "encoder_layers", "num_hidden_layers")
    decoder = config.number("num_decoder_layers", "decoder_layers", default=encoder)
    return encoder + decoder, decoder
