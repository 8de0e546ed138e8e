from dataclasses import replace

import pytest

from lmi_backend.sizing.adapters import AdapterSlots, adapter_bytes
from tests.unit.sizing.test_memory import LLAMA_3_8B


@pytest.mark.parametrize(
    ("slots", "factor"), [((1, 16, 2), 32), ((4, 64, 2), 512), ((1, 8, 4), 32)]
)
def test_slots_are_counted_by_rank_and_type(slots: tuple[int, int, int], factor: int) -> None:
    count, rank, size = slots
    found = adapter_bytes(
        LLAMA_3_8B, AdapterSlots(count=count, rank=rank, bytes_each=size), tensor=1, pipeline=1
    )
    # 4 * 4096 in, 2 * 4096 + 2 * 1024 out of attention; three matrices of the MLP.
    layer = 4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 4096 + 3 * 14336
    ends = 2 * (LLAMA_3_8B.vocab_size + 4096)
    assert found == (32 * layer + ends) * factor


def test_split_devices_have_less_and_mixtures_more() -> None:
    slots = AdapterSlots(count=4, rank=16)
    whole = adapter_bytes(LLAMA_3_8B, slots, tensor=1, pipeline=1)
    assert whole / 2 < adapter_bytes(LLAMA_3_8B, slots, tensor=2, pipeline=1) < whole
    # Each stage has one end of the vocabulary.
    assert adapter_bytes(LLAMA_3_8B, slots, tensor=1, pipeline=2) == whole // 2
    mixture = replace(LLAMA_3_8B, num_experts=8, expert_intermediate_size=14336)
    assert adapter_bytes(mixture, slots, tensor=1, pipeline=1) > 4 * whole
