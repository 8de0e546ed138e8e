"""Parameters of encoders, counted by hand."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.towers import count_encoder_parameters

TOWER = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 32}
ATTENTION = 4 * 8 * 8
MLP = 2 * 8 * 32
PROJECTION = 8 * 16


@pytest.mark.parametrize(
    ("more", "layer"),
    [
        ({}, ATTENTION + MLP),
        # A conformer: two MLPs, and a convolution of three matrices of its width.
        ({"model_type": "gemma4_audio"}, ATTENTION + 2 * MLP + 3 * 8 * 8),
        ({"conv_kernel_size": 5}, ATTENTION + 2 * MLP),
    ],
)
def test_layers_of_an_encoder_of_sounds(more: dict[str, Any], layer: int) -> None:
    outer = {"audio_config": {**TOWER, **more}}
    config = ConfigFields(Path("config.json"), {}, outer)
    assert count_encoder_parameters(config, 16) == (0, 2 * layer + PROJECTION)
