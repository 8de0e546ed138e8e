"""The cache of DeepSeek-V4, whose layers compress the text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.sizing.compressed import (
    CompressedLayers,
    compressed_layout,
    read_compressed_layers,
)
from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.kv_groups import KvLayout
from lmi_backend.sizing.kv_layers import LocalAttention
from lmi_backend.sizing.step import Release, Step
from tests.unit.sizing.test_memory import LLAMA_3_8B

V4 = replace(LLAMA_3_8B, num_layers=43, num_kv_layers=43, local=LocalAttention(43, 128))
FLASH = CompressedLayers(few=21, many=20, index_bytes=132)
WINDOW = 65 * 576
"""Bytes of 64 vectors of 584 bytes, in whole units of 576; 64 compressed vectors take as many."""
FEW, MANY = WINDOW + 15 * 576, 3 * 576


def layout(
    layers: int, compressed: CompressedLayers = FLASH, release: Release = (0, 25)
) -> KvLayout:
    step = Step(tokens=8192, sequences=256, release=release)
    return compressed_layout(V4, compressed, step, layers)


@pytest.mark.parametrize(
    ("layers", "few", "many", "local_groups"), [(43, 21, 20, 2), (22, 11, 11, 2), (1, 1, 1, 1)]
)
def test_the_compressed_text_of_a_stages_layers_shares_a_block(
    layers: int, few: int, many: int, local_groups: int
) -> None:
    found = layout(layers)
    assert (found.block_size, found.full_block, found.local_block) == (256, 256, 64)
    assert found.block_bytes == few * FEW + many * MANY
    assert (found.full_groups, found.local_groups, found.groups) == (
        1,
        local_groups,
        local_groups + 3,
    )


@pytest.mark.parametrize(("release", "flight"), [((0, 25), 8192), ((0, 26), 16384)])
def test_what_waits_for_its_compression_is_cached_too(release: Release, flight: int) -> None:
    found = layout(43, release=release)
    assert found.local_tokens == 127 + flight
    # Four tokens are compressed with the four after them.
    assert found.further == ((7 + flight, 4), (127 + flight, 8))


def test_layers_that_compress_nothing_have_their_windows_only() -> None:
    found = layout(43, CompressedLayers(few=0, many=0, index_bytes=132))
    assert (found.block_bytes, found.full_groups, found.local_groups) == (WINDOW, 0, 43)
    assert (found.further, found.groups) == ((), 44)
    found = layout(43, CompressedLayers(few=0, many=20, index_bytes=132))
    assert (found.block_bytes, found.full_groups) == (WINDOW, 1)
    assert found.further == ((127 + 8192, 8),)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, CompressedLayers(2, 1, 132)),
        ({"index_head_dim": 129}, CompressedLayers(2, 1, 137)),
        (
            {"model_type": "", "architectures": ["DeepseekV4ForCausalLM"]},
            CompressedLayers(2, 1, 132),
        ),
        ({"model_type": "deepseek_v3"}, None),
        ({"compress_ratios": None}, None),
    ],
)
def test_they_are_read_of_the_config(
    config: dict[str, Any], layers: CompressedLayers | None
) -> None:
    """Of the model's own layers: those that draft come after them."""
    fields = {"model_type": "deepseek_v4", "compress_ratios": [0, 4, 128, 4, 4], **config}
    assert read_compressed_layers(ConfigFields(Path("config.json"), fields, fields), 4) == layers
