"""The planner's layout of the cache is what the installed vLLM makes of the same layers."""

import json
from itertools import product
from typing import Any

from lmi_backend.printable import GIB
from lmi_backend.sizing.kv_layers import LocalAttention, StateLayers
from lmi_backend.sizing.kv_layout import CacheSizes, KvLayout, kv_layout
from lmi_backend.sizing.memory import CacheKind, with_draft
from lmi_backend.sizing.model_facts import Draft
from lmi_backend.sizing.step import Step
from tests.support.records.facts import LLAMA_3_8B, with_fields
from tests.support.run.places import SCRIPTS, TINY

SPACE = 40 * GIB
TOKEN = 2 * 8 * 64 * 2
STATE = 2_146_304
WINDOWS = [
    {"full": full, "local": local, "states": 0, "window": window, "length": length,
     "narrow": narrow, "state": 0, "caches": False, "draft": 0}
    for full, local, window, length, narrow in product(
        (0, 5, 10, 12), (0, 7, 15, 52), (128, 4096), (2048, 131_072), (1, 2)
    )
    if full + local and ((full and local) or narrow == 1)
]  # fmt: skip
STATES = [
    {"full": full, "local": 0, "states": states, "window": 1, "length": length, "narrow": 1,
     "state": STATE, "caches": caches, "draft": 0}
    for full, states, length, caches in product((4, 10), (10, 27, 30), (8192, 131_072), (0, 1))
]  # fmt: skip
STATES += [case | {"drafted": 3} for case in STATES if case["length"] == 131_072]
DRAFTS = [
    {"full": 32, "local": 0, "states": 0, "window": 1, "length": 8192, "narrow": 1,
     "state": 0, "caches": False, "draft": draft}
    for draft in (1, 3)
]  # fmt: skip


def layout(case: dict[str, int], tokens: int) -> KvLayout:
    count = case["full"] + case["local"]
    facts = with_fields(
        LLAMA_3_8B,
        num_layers=count + case["states"],
        layers=count,
        local=LocalAttention(case["local"], case["window"] if case["local"] else 0),
        states=StateLayers(case["states"], 1),
        drafted_tokens=case.get("drafted", 0),
    )
    step = Step(tokens=tokens, sequences=256, prefix_caching=bool(case["caches"]))
    sizes = CacheSizes(token=TOKEN, full_token=TOKEN // case["narrow"], state=case["state"])
    made = kv_layout(facts, step, layers=facts.shape.num_layers, sizes=sizes, block_size=16)
    draft = Draft(name="", layer_values=TOKEN // 4 // 2, layers=case["draft"])
    return with_draft(made, draft, 1, CacheKind(dtype_bytes=2))


def test_blocks_and_tokens_are_vllms(vllm_interpreter: Any) -> None:
    cases = [case | {"block": layout(case, 1).block_size} for case in WINDOWS + STATES + DRAFTS]
    script, model = str(SCRIPTS / "vllm_layout.py"), str(TINY / "llama")
    asked = json.dumps({"space": SPACE, "cases": cases})
    answered = json.loads(vllm_interpreter.run(script, model, data=asked.encode()).splitlines()[-1])
    assert len(answered["found"]) == len(cases) == 134
    for case, found in zip(cases, answered["found"], strict=True):
        # Steps overlap on a GPU, and not on this machine.
        made = layout(case, answered["in_flight"] // 2)
        blocks = SPACE // made.block_bytes
        tokens = made.tokens(blocks, case["length"])
        # vLLM multiplies in floating point.
        assert (blocks, tokens) == (found[0], found[1]) or tokens - 1 == found[1], case
