"""vLLM's engine alone, asked in its own process: what there is to lose.

Runs in the engine's environment: `python raw_engine.py MODEL`. Reads lines
`{"tokens": …, "concurrency": …, "requests": …, "prompt": …}` from standard input and answers each
with a line: the seconds at which each request was asked and each of its outputs came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import aclosing
from typing import Any

import uvloop
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM


async def main(model: str, out: Any) -> None:
    """Serve lines until standard input ends."""
    arguments = AsyncEngineArgs(
        model=model, max_model_len=1024, max_num_seqs=256, enforce_eager=True, dtype="float32"
    )
    engine = AsyncLLM.from_engine_args(arguments)
    out.write("ready\n")
    while line := await asyncio.to_thread(sys.stdin.readline):
        out.write(json.dumps(await _run(engine, **json.loads(line))) + "\n")
    engine.shutdown()


async def _run(
    engine: Any, prompt: str, tokens: int, concurrency: int, requests: int
) -> list[tuple[float, list[float]]]:
    left = iter(range(requests))
    answers: list[tuple[float, list[float]]] = []
    params = SamplingParams(
        max_tokens=tokens, ignore_eos=True, temperature=0.0, output_kind=RequestOutputKind.DELTA
    )

    async def ask_on() -> None:
        for _ in left:
            asked, times = time.monotonic(), []
            stream = engine.generate(prompt, params, os.urandom(8).hex())
            async with aclosing(stream) as outputs:
                async for _output in outputs:
                    times.append(time.monotonic())
            answers.append((asked, times))

    await asyncio.gather(*(ask_on() for _ in range(concurrency)))
    return answers


if __name__ == "__main__":
    # vLLM logs to standard output.
    answers_out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    uvloop.run(main(sys.argv[1], answers_out))
