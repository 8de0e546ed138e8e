"""How far an estimate may be off, on the side of fewer tokens."""

from dataclasses import replace

import pytest

from lmi_backend.sizing.kv_layers import DeltaShape, StateLayers
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import Step
from lmi_backend.sizing.uncertainty import uncertainty
from lmi_backend.units import GIB
from tests.unit.sizing.test_memory import LLAMA_3_8B

STEP = Step(tokens=8192, sequences=256, release=(0, 32), capability=90)
TAKEN = (2 * GIB, GIB)
DELTA = DeltaShape(key_heads=16, value_heads=32, key_dim=128, value_dim=128)


def _less(facts: ModelFacts, step: Step) -> int:
    return uncertainty(facts, step, 10 * GIB, TAKEN)[0]


def _with_delta() -> ModelFacts:
    return replace(LLAMA_3_8B, states=StateLayers(layers=24, delta=DELTA))


def test_a_trial_run_of_gated_delta_nets_may_be_counted_among_graphs() -> None:
    facts = _with_delta()
    older = replace(STEP, release=(0, 25))
    assert _less(facts, STEP) - _less(facts, older) == TAKEN[0]


@pytest.mark.parametrize(("capability", "more"), [(90, 0), (100, 7), (103, 7), (120, 0)])
def test_graphs_of_b200_and_its_like_may_be_estimated_far_too_high(
    capability: int, more: int
) -> None:
    there = replace(STEP, capability=capability)
    assert _less(LLAMA_3_8B, there) - _less(LLAMA_3_8B, STEP) == more * GIB


def test_graphs_of_drafts_may_take_as_much_again() -> None:
    drafting = replace(LLAMA_3_8B, drafted_tokens=2)
    assert _less(drafting, STEP) - _less(LLAMA_3_8B, STEP) == TAKEN[1]
