"""How many layers a model has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.layer_kinds import repeated_layers

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields

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
    if repeated := repeated_layers(config):
        return repeated[1], repeated[1]
    if not is_encoder_decoder(config):
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        kinds = config.get("layers_block_type")
        listed = len(kinds) if isinstance(kinds, list) and kinds else None
        layers = config.number(*names, default=listed)
        return layers, layers
    encoder = config.number("num_layers", "encoder_layers", "num_hidden_layers")
    decoder = config.number("num_decoder_layers", "decoder_layers", default=encoder)
    return encoder + decoder, decoder
