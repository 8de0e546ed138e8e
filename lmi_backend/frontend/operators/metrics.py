"""Metrics on the clients' port: Triton's, LMI's among them, and those that fleets route by.

Gateways' endpoint pickers take one series of a name and never sum, so there is one of each, over
all models and workers. They scrape twenty times a second. So what is costly is kept for a while,
and a connection that repeats its request meanwhile is answered at once.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from lmi_backend.errors import LmiError
from lmi_backend.frontend.connection import ASK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models


_FAMILY: Final = re.compile(r"^(?=# HELP )", re.MULTILINE)
_BUCKET: Final = "_bucket"
_PARTS: Final = (_BUCKET, "_sum", "_count")


def as_histograms(text: str) -> str:
    """Return a page of metrics on which each histogram is one family with its type.

    Collectors that go by the type would otherwise keep three counters.
    """
    head, *families = _FAMILY.split(text)
    blocks: defaultdict[str, str] = defaultdict(str)
    for family in families:
        blocks[family.split(maxsplit=3)[2]] += family
    for name in [each for each in blocks if each.endswith(_BUCKET)]:
        base = name.removesuffix(_BUCKET)
        if all(base + part in blocks for part in _PARTS):
            about = blocks[name].partition("\n")[0].replace(name, base, 1)
            lines = "".join(blocks[base + part] for part in _PARTS).splitlines()
            samples = (line for line in lines if not line.startswith("#"))
            whole = (about, f"# TYPE {base} histogram", *samples)
            blocks[name] = "".join(f"{line}\n" for line in whole)
            del blocks[f"{base}_sum"], blocks[f"{base}_count"]
    return head + "".join(blocks.values())


_TRITON_SECONDS: Final = 1.0
"""Between two looks at Triton's metrics; the stubs publish theirs once a second."""
_MODEL_SECONDS: Final = 0.09
"""Between two questions to the models, which cost more than the rest of an answer."""
_QUIET_SECONDS: Final = 0.5
"""The same if nothing ran or waited then, and no request came through this process since. Requests
on Triton's own ports, or through another process of the front end, show this late."""
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_CACHE_USAGE: Final = "vllm:kv_cache_usage_perc"
_OF_MODELS: Final = re.compile(
    rf"^(?:# (?:HELP|TYPE) )?(?:{_RUNNING}|{_WAITING}|{_CACHE_USAGE})[ {{].*\n", re.MULTILINE
)
"""Lines of Triton's that are of one worker, where one series is wanted."""
FAMILIES: Final = {
    "lmi_front_end_requests_waiting": (
        "gauge", "waiting", "Requests that wait for a model that is down, to begin or to resume",
    ),
    "lmi_front_end_migrations_total": (
        "counter", "moved", "Times a request resumed after its model's process had died",
    ),
    "lmi_front_end_requests_held_total": (
        "counter", "held", "Requests that waited to begin because their model was down",
    ),
    "lmi_front_end_requests_given_up_total": (
        "counter", "given_up",
        "Requests that waited for a model, to begin or to resume, that was not back in time",
    ),
    "lmi_front_end_answers_kept": (
        "gauge", "answers", "Streams that are buffered for clients that may reconnect",
    ),
    "lmi_front_end_answers_kept_bytes": (
        "gauge", "bytes", "Bytes of memory that they take, about",
    ),
    "lmi_front_end_reconnections_total": (
        "counter", "reconnections", "Times that a client reconnected for the rest of its stream",
    ),
    "lmi_front_end_answers_lapsed_total": (
        "counter", "lapsed", "Streams that were cancelled because their clients did not reconnect",
    ),
}  # fmt: skip
"""Name to kind, count and help of what the front end counts, or a model of what it buffers."""
_HEADERS: Final = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metrics:
    def __init__(self, models: Models, url: str) -> None:
        self._models, self._url = models, url
        self._triton, self._triton_at = "", -_TRITON_SECONDS
        self._fleet, self._fleet_at = "", -_QUIET_SECONDS
        self._is_quiet = False
        self._renewing = asyncio.Lock()

    async def show(self, exchange: Exchange) -> None:
        async with self._renewing:
            now = time.monotonic()
            if now - self._triton_at >= _TRITON_SECONDS:
                self._triton, self._triton_at = await self._read_triton(), now
            if self._is_fleet_old(now):
                self._fleet, self._fleet_at = await self._read_models(), now
        await exchange.respond(200, (self._triton + self._fleet).encode(), _HEADERS)

    async def load(self, exchange: Exchange) -> None:
        """Answer as vLLM's server does: how many requests all models have, running or waiting."""
        running, waiting = _loads(await asyncio.gather(*map(_state, self._models.all())))
        await exchange.respond_json({"server_load": running + waiting})

    def _is_fleet_old(self, now: float) -> bool:
        age = now - self._fleet_at
        if age < _MODEL_SECONDS:
            return False
        is_busy = any(model.connection.num_open for model in self._models.all())
        return age >= _QUIET_SECONDS or is_busy or not self._is_quiet

    async def close(self) -> None:
        await self._session.close()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ASK_SECONDS))

    async def _read_triton(self) -> str:
        try:
            async with self._session.get(self._url) as response:
                text = await response.text() if response.ok else ""
                return as_histograms(_OF_MODELS.sub("", text))
        except (aiohttp.ClientError, asyncio.TimeoutError):
            # The server starts, or is started again.
            return ""

    async def _read_models(self) -> str:
        states = await asyncio.gather(*map(_state, self._models.all()))
        held = self._models.outage_counts()
        is_waiting = any(counts["waiting"] for counts in held.values())
        self._is_quiet = not is_waiting and all(states) and not any(_loads(states))
        buffered = {each["model"]: each["buffered"] for each in states if each}
        lines = (*_lines(states), *_held(held, buffered))
        return "".join(f"{line}\n" for line in lines)


async def _state(model: Model) -> dict[str, Any]:
    try:
        return await model.connection.requests.state(is_brief=True)
    except LmiError:
        return {}


def _loads(states: Iterable[dict[str, Any]]) -> tuple[int, int]:
    reported = [state for state in states if state]
    parts = [each["stats"] for state in reported for each in (state, *state["workers"])]
    return sum(each.get("running", 0) for each in parts), sum(each["waiting"] for each in parts)


def _lines(states: Iterable[dict[str, Any]]) -> Iterator[str]:
    reported = [state for state in states if state]
    workers = [worker["stats"] for state in reported for worker in state["workers"]]
    running, waiting = _loads(reported)
    # By which vLLM's own boards ask; several models share the series.
    name = {"model_name": reported[0]["model"]} if len(reported) == 1 else {}
    yield from _family(_RUNNING, "Requests that engines generate for", running, name)
    meaning = "Requests that wait, for a worker or in an engine"
    yield from _family(_WAITING, meaning, waiting, name)
    meaning = "Share of KV-cache blocks in use of the fullest worker, 0 to 1"
    fullest = max((worker["kv_cache_usage"] for worker in workers), default=0.0)
    yield from _family(_CACHE_USAGE, meaning, fullest, name)
    yield from _cache(workers)
    yield from _adapters(workers, max((state["now"] for state in reported), default=0.0))


def _held(
    counts: Mapping[str, Mapping[str, int]], buffered: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield what this process counts of each model; others that share the port count for them.

    What the models count of the answers that they buffer is the same in all processes.
    """
    for name, (kind, key, meaning) in FAMILIES.items():
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for model, values in counts.items():
            if key in values:
                yield _series(name, {"model": model, "process": str(os.getpid())}, values[key])
        for model, values in buffered.items():
            if key in values:
                yield _series(name, {"model": model}, values[key])


def _cache(workers: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what KV cache there is; nothing where no engine says, or their blocks differ."""
    having = [worker for worker in workers if worker["kv_blocks"]]
    sizes = {worker["kv_block_size"] for worker in having}
    if len(sizes) == 1:
        labels = {
            "block_size": str(sizes.pop()),
            "num_gpu_blocks": str(sum(worker["kv_blocks"] for worker in having)),
        }
        yield from _family("vllm:cache_config_info", "KV cache of all workers", 1, labels)


def _adapters(workers: Iterable[dict[str, Any]], now: float) -> Iterator[str]:
    """Yield which LoRA adapters are in use; nothing where no engine has LoRA."""
    having = [worker for worker in workers if worker["max_adapters"]]
    if having:
        labels = {
            # Of one worker: two may be in use by the same adapter.
            "max_lora": str(max(worker["max_adapters"] for worker in having)),
            "running_lora_adapters": _names(having, "running_adapters"),
            "waiting_lora_adapters": _names(having, "waiting_adapters"),
        }
        meaning = "LoRA adapters in use; the value is when, in seconds since 1970"
        yield from _family("vllm:lora_requests_info", meaning, now, labels)


def _names(workers: Iterable[dict[str, Any]], key: str) -> str:
    return ",".join(sorted({name for worker in workers for name in worker[key]}))


def _family(
    name: str, meaning: str, value: float, labels: Mapping[str, str] | None = None
) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} gauge"
    yield _series(name, labels or {}, value)


def _series(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = [f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items()]
    return f"{name}{'{' + ','.join(pairs) + '}' if pairs else ''} {value}"
