"""Whether a model fits, split so or so, and how many tokens its KV cache then holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lmi_backend.errors import PlanError
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import find_option, lmi_dist, vllm
from lmi_backend.options.table import server as srv
from lmi_backend.plan.ranks import find_hosts
from lmi_backend.plan.workers import host_workers
from lmi_backend.sizing.kv_layers import NO_LOCAL, NO_STATES
from lmi_backend.sizing.memory import CacheKind, MemoryEstimate, cache_layout, estimate_memory
from lmi_backend.sizing.step import AMPERE, HOPPER, NEWEST, Release, Step
from lmi_backend.sizing.weights import DTYPE_BYTES
from lmi_backend.units import GIB, MIB, human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.engine_spec import Implementation
    from lmi_backend.options.option import Option
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.kv_groups import KvLayout
    from lmi_backend.sizing.model_facts import ModelFacts

_STEP_TOKENS = 2048
"""Tokens of an engine's step when nobody says: what vLLM takes where it is not its own server."""
_LARGER_SHARE, _OLDER_SHARE = (0, 20), 0.9
"""The release of vLLM that raised its default for `gpu_memory_utilization`, and what it was."""
_LARGE_DEVICE = 70 * GIB
"""A device with more memory is taken for a Hopper where nobody says what it is."""
_CPU_BLOCK = 128
"""Tokens of a KV-cache block in vLLM 0.32; its CPU kernels want multiples of 32."""
_CPU_TOKENS = 1024
"""Tokens that the KV cache on a CPU has for each request at once, if there is the memory."""
_CPU_SHARE = 0.25
"""The most it takes of the memory that the weights leave."""
_GIBS = re.compile(r"[0-9]{1,9}")
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_BYTES = {**DTYPE_BYTES, "int8": 1}
_RUNTIME_QUANTISATION = {"fp8": 8, "bitsandbytes": 4, "bitsandbytes4": 4, "bitsandbytes8": 8}


def utilization(options: LmiOptions, release: Release) -> float:
    """Return the share of a device's memory that an engine takes, of a release of vLLM."""
    spec = options.choice.spec
    is_older = spec.implementation.counts_memory_as_vllm and release < _LARGER_SHARE
    asked = _asked(options, spec.utilization_option)
    return float(asked or (_OLDER_SHARE if is_older else spec.utilization))


def _asked(options: LmiOptions, name: str) -> float | None:
    """Return what an option of the engine says, else LMI's default; None if neither does."""
    option: Option[float | None] | None = find_option(name, options.choice.engine)
    if option is None:
        return None
    return options.values.get(name) or option.lmi_default


@dataclass(frozen=True)
class Capacity:
    """The question, with everything but the degrees."""

    options: LmiOptions
    hardware: Hardware
    facts: ModelFacts
    environment: Mapping[str, str]
    max_running: int
    release: Release = NEWEST
    """Of vLLM, which the plan is made for."""

    @property
    def budget(self) -> int:
        """Bytes of one device that the engine may use."""
        share = int(self.hardware.device_memory * self.utilization)
        kept = self.options[srv.GPU_RESERVED_MEMORY] * MIB
        return min(share, self.hardware.device_memory - kept)

    @property
    def utilization(self) -> float:
        """Share of a device's memory that the engine may use."""
        return utilization(self.options, self.release)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that must fit; 1 where the engine chooses it."""
        if asked := self._asked(self.options.choice.spec.length_option):
            return max(1, int(asked))
        return self.facts.max_position_embeddings or 1

    def estimate(self, tensor: int, pipeline: int) -> MemoryEstimate:
        """Estimate the memory of one device."""
        offloaded = int(self.options[vllm.CPU_OFFLOAD] * GIB)
        return estimate_memory(
            self.facts,
            degrees=(tensor, pipeline),
            budget=self.budget + offloaded,
            cache=self._cache(self.options.choice.spec.block_size),
            step=self.step,
            weight_scale=self._weight_scale(),
        )

    @property
    def step(self) -> Step:
        """One step of the engine."""
        known = self.hardware.capability
        supposed = HOPPER if self.hardware.device_memory >= _LARGE_DEVICE else AMPERE
        return Step(
            tokens=self.options[opt.MAX_PREFILL_TOKENS] or _STEP_TOKENS,
            sequences=self.max_running,
            release=self.release,
            capability=known or supposed,
            graphs=self._captures_graphs(),
            prefix_caching=self._caches_prefixes(),
        )

    @property
    def _counts_as_vllm(self) -> bool:
        return self.options.choice.spec.implementation.counts_memory_as_vllm

    def _captures_graphs(self) -> bool:
        """Tell whether the engine takes CUDA graphs off the memory for the cache."""
        return self._counts_as_vllm and not self.options[vllm.ENFORCE_EAGER]

    def _caches_prefixes(self) -> bool | None:
        """Return whether the beginnings of prompts are kept; None is as the engine decides."""
        name = lmi_dist.ENABLE_PREFIX_CACHING.name
        if find_option(name, self.options.choice.engine) is None:
            return None
        return self.options[lmi_dist.ENABLE_PREFIX_CACHING]

    def estimate_on_cpu(self, tensor: int, pipeline: int) -> MemoryEstimate | None:
        """Return what an engine makes of the space for its cache, of one rank on the host.

        None where nobody says how much that is, and the engine decides.

        Raises:
            PlanError: weights and cache do not fit into the host's memory.
        """
        space = self.space_on_cpu
        if not space and not self._is_sized_on_cpu:
            return None
        cache = self._cache(_CPU_BLOCK)
        facts = self._plain_facts if self._implementation.cpu_cache else self.facts
        layout = cache_layout(facts, degrees=(tensor, pipeline), cache=cache, step=self.step)
        weights = int(self.facts.weight_bytes * self._weight_scale() / (tensor * pipeline))
        if not space:
            ranks = tensor * pipeline * host_workers(self.options)
            ranks = -(-ranks // max(1, len(find_hosts(self.options, self.environment))))
            space = self._share_of_host(layout, weights, ranks)
        return MemoryEstimate(
            weights=weights,
            draft=self.facts.draft,
            activations=0,
            overhead=0,
            kv_cache=space,
            block_size=layout.block_size,
            block_bytes=layout.block_bytes,
            layout=layout,
            length=cache.length,
            release=self.release,
        )

    @property
    def space_on_cpu(self) -> int:
        """Bytes of the cache on the CPU as the user says; 0 if nobody says."""
        text = self.environment.get(_CPU_SPACE, "")
        return int(text) * GIB if _GIBS.fullmatch(text) else self.options[vllm.KV_CACHE_MEMORY]

    @property
    def _implementation(self) -> Implementation:
        return self.options.choice.spec.implementation

    @property
    def _is_sized_on_cpu(self) -> bool:
        """Whether the plan decides what an engine's cache takes of the host."""
        has_cache = self._implementation.cpu_cache and not self.facts.is_encoder_decoder
        return bool(has_cache and self.hardware.host_memory)

    @property
    def _plain_facts(self) -> ModelFacts:
        """The model as Transformers counts blocks: as if each layer saw the whole text."""
        return replace(
            self.facts,
            num_kv_layers=self.facts.num_layers,
            wide=None,
            local=NO_LOCAL,
            states=NO_STATES,
        )

    def _share_of_host(self, layout: KvLayout, weights: int, ranks: int) -> int:
        """Return the bytes of one rank's cache, of as many ranks on this host.

        Raises:
            PlanError: not even a block is left.
        """
        host = self.hardware.host_memory
        block = layout.block_bytes
        length = min(self.longest, _CPU_TOKENS)
        wanted = max(layout.blocks_for(length) * self.max_running, layout.blocks_for(self.longest))
        left = int((host / ranks - weights) * _CPU_SHARE)
        if left < block:
            raise PlanError(
                f"the model does not fit into the host's memory: {ranks} x {human_bytes(weights)} "
                f"for weights, and {human_bytes(block)} each for {layout.block_size} tokens of KV "
                f"cache, {_CPU_SHARE:.0%} of what is left; {human_bytes(host)} are available; "
                "accepted: a smaller or quantised model, or fewer workers (minWorkers)"
            )
        return min(wanted * block, left)

    def fits(self, estimate: MemoryEstimate) -> bool:
        """Tell whether the weights fit, and one sequence of the longest kind beside them."""
        return estimate.kv_cache > 0 and (
            not estimate.block_bytes or estimate.longest >= self.longest
        )

    def could_fit(self, estimate: MemoryEstimate) -> bool:
        """Tell whether it may fit although the estimate says no: were activations nothing."""
        best = estimate.kv_cache + estimate.step
        if not estimate.block_bytes:
            return best > 0
        return estimate.layout.longest(best // estimate.block_bytes) >= self.longest

    def describe(self, estimate: MemoryEstimate) -> list[str]:
        """Say in sentences what takes the memory, and what fits."""
        lines = []
        if self.hardware.devices:
            lines.append(
                f"memory per device: {human_bytes(estimate.weights)} weights "
                f"({self.facts.weight_source}), "
                f"{human_bytes(estimate.step)} for a step, "
                f"{human_bytes(max(estimate.kv_cache, 0))} KV cache; "
                f"{human_bytes(self.budget)} usable, {self.utilization:.0%} of "
                f"{human_bytes(self.hardware.device_memory)}"
            )
        if estimate.draft is not None:
            lines.append(str(estimate.draft))
        tokens = estimate.num_tokens
        if estimate.block_bytes:
            each = tokens // self.max_running
            lines.append(
                f"KV cache: {estimate.num_blocks} blocks of {estimate.block_size}, "
                f"{tokens} tokens fit at once: {each} for each of {self.max_running} requests, "
                f"or {tokens / self.longest:.1f} of {self.longest}"
            )
        return lines

    def _cache(self, block_size: int) -> CacheKind:
        return CacheKind(
            dtype_bytes=self._kv_bytes(),
            block_size=int(self._asked(self.options.choice.spec.block_option) or block_size),
            length=self.longest,
        )

    def _asked(self, name: str) -> float | None:
        return _asked(self.options, name)

    def _kv_bytes(self) -> float:
        """Return the bytes of one cached number."""
        word = str(self.options[vllm.KV_CACHE_DTYPE] or "auto")
        if word.startswith(("fp8", "int8")):
            return 1
        return _BYTES.get(word) or self._model_bytes()

    def _model_bytes(self) -> int:
        dtype = self.options[opt.DTYPE]
        if dtype == "auto":
            # Others than Transformers serve a model stored in float32 in 16 bits.
            return _BYTES.get(self.facts.dtype, 2) if self._implementation.cpu_cache else 2
        return _BYTES[dtype]

    def _weight_scale(self) -> float:
        """Return bytes in memory for one byte of the checkpoint."""
        if self.facts.quantization:
            return 1.0
        stored = _BYTES.get(self.facts.dtype, 2)
        bits = _RUNTIME_QUANTISATION.get(self.options[vllm.QUANTIZE] or "")
        return (bits / 8 if bits else self._model_bytes()) / stored
