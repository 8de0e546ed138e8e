"""Over how many devices the layers of a model can be split."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts


def valid_tensor_degrees(facts: ModelFacts, limit: int) -> list[int]:
    """Return the tensor parallel degrees up to the limit that vLLM accepts.

    Every device needs as many attention heads as the others. It also needs an equal share of the KV
    heads. If there are fewer KV heads than devices, each is shared by equally many devices.
    """
    return [degree for degree in divisors(facts.num_heads, limit) if _accepts(facts, degree)]


def divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number up to a limit, in their order."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return [each for each in sorted({*small, *(number // each for each in small)}) if each <= limit]


def _accepts(facts: ModelFacts, degree: int) -> bool:
    # The one latent vector of MLA is on every device.
    kv_heads = facts.num_kv_heads
    return facts.is_mla or kv_heads % degree == 0 or degree % kv_heads == 0
