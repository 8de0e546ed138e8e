"""Ask vLLM itself how it lays out a cache; runs in the engine's Python, JSON in and out."""

import json
import sys
from typing import Any

import torch
from vllm import AsyncEngineArgs
from vllm.v1.core.kv_cache_utils import get_kv_cache_capacity, get_kv_cache_configs
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

HEADS, HEAD_DIM, BLOCK = 8, 64, 16


def main() -> None:
    asked = json.load(sys.stdin)
    config = AsyncEngineArgs(model=sys.argv[1]).create_engine_config()
    config.cache_config.kv_cache_layout = "LBNHC"
    found = [answer(config, case, asked["space"]) for case in asked["cases"]]
    json.dump({"in_flight": config.max_in_flight_tokens, "found": found}, sys.stdout)


def answer(config: Any, case: dict[str, int], space: int) -> tuple[int, int]:
    """Return vLLM's number of blocks and what it writes as the size of the cache."""
    config.model_config.max_model_len = case["length"]
    config.cache_config.mamba_cache_mode = "align" if case["caches"] else "none"
    made = get_kv_cache_configs(config, [layers(case)], [space])[0]
    return made.num_blocks, get_kv_cache_capacity(config, made)[0]


def layers(case: dict[str, int]) -> dict[str, Any]:
    cached = {"head_size": HEAD_DIM, "dtype": torch.bfloat16}
    full = FullAttentionSpec(
        block_size=case["block"], num_kv_heads=HEADS // case["narrow"], **cached
    )
    local = SlidingWindowSpec(
        block_size=BLOCK, num_kv_heads=HEADS, sliding_window=case["window"], **cached
    )
    state = MambaSpec(
        block_size=case["block"],
        shapes=((case["state"] // 4,),),
        dtypes=(torch.float32,),
        page_size_padded=full.page_size_bytes,
        mamba_cache_mode="align" if case["caches"] else "none",
        num_speculative_blocks=case.get("drafted", 0),
    )
    # A draft model's heads differ from the model's.
    draft = FullAttentionSpec(block_size=BLOCK, num_kv_heads=HEADS // 4, **cached)
    kinds = {"full": full, "local": local, "states": state, "draft": draft}
    return {f"{kind}.{index}": spec for kind, spec in kinds.items() for index in range(case[kind])}


if __name__ == "__main__":
    main()
