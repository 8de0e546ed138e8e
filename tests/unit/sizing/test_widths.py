"""Encoders of images and sounds, and the rotations of positions."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.widths import count_encoder_parameters
from tests.support.records.published_logs import facts_of, known_configs

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


FAST, SLOW = {"rope_theta": 1e6}, {"rope_theta": 1e4}
EIGHTFOLD = {"rope_type": "linear", "factor": 8.0}
CONFIG = known_configs()["Qwen/Qwen3-8B"]


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({}, 128),
        ({"partial_rotary_factor": 0.5}, 64),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}}, 32),
        ({"rotary_dim": 64}, 64),
        # Images and videos have four times the positions.
        ({"rope_parameters": {"mrope_section": [24, 20, 20], "rope_type": "default"}}, 4 * 128),
        # Windows of Gemma 3 have rotations of their own.
        ({"rope_local_base_freq": 10000.0}, 2 * 128),
        ({"rope_parameters": {"full_attention": FAST, "sliding_attention": SLOW}}, 2 * 128),
        ({"rope_parameters": {"full_attention": FAST, "sliding_attention": FAST}}, 128),
        # Gemma-3's whole layers have eight times the positions, those with a window do not.
        ({"rope_scaling": EIGHTFOLD}, 8 * 128),
        ({"rope_scaling": EIGHTFOLD, "rope_local_base_freq": 10000.0}, 9 * 128),
        # What nobody writes is passed over.
        *(({"rope_scaling": EIGHTFOLD | {"factor": each}}, 128) for each in (-2, 0.5, "8", 1e300)),
        ({"rope_scaling": EIGHTFOLD | {"factor": True}}, 128),
        ({"partial_rotary_factor": "half"}, 128),
        ({"partial_rotary_factor": 7}, 128),
        ({"rope_parameters": "auto"}, 128),
        ({"rope_parameters": {"full_attention": {}, "a": 5}}, 128),
    ],
)  # fmt: skip
def test_the_numbers_of_a_position(change: dict[str, Any], numbers: int) -> None:
    assert facts_of(CONFIG | change).shape.rotated == numbers


def test_wide_layers_keep_what_they_do_not_rotate() -> None:
    """As Gemma 4: half of the logged weights that were missing."""
    assert facts_of(known_configs()["nvidia/Gemma-4-31B-IT-NVFP4"]).shape.rotated == 256 + 512
