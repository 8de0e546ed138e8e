"""Whether a model fits, split so or so, and how many tokens its KV cache then holds."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.errors import PlanError
from lmi_backend.options.table import common as opt
from lmi_backend.options.table import find_option, vllm
from lmi_backend.options.table import server as srv
from lmi_backend.plan.hardware import gpu_of_memory
from lmi_backend.plan.memory_options import (
    adapter_slots,
    cache_bytes,
    captured_sizes,
    context_ranks,
    copies,
    given_number,
    layer_partition,
    passed_number,
    uncounted_arguments,
    utilization,
    weight_scale,
    without_encoders,
)
from lmi_backend.plan.ranks import find_hosts
from lmi_backend.plan.workers import host_workers
from lmi_backend.printable import GIB, MIB, human_bytes
from lmi_backend.sizing.config_fields import uncounted
from lmi_backend.sizing.kv_layers import NO_LOCAL, NO_STATES
from lmi_backend.sizing.memory import (
    UNSURE,
    CacheKind,
    MemoryEstimate,
    adapter_bytes,
    cache_layout,
    estimate_memory,
)
from lmi_backend.sizing.quantization import DTYPE_BYTES
from lmi_backend.sizing.step import AMPERE, HOPPER, NEWEST, Release, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.kv_layout import KvLayout
    from lmi_backend.sizing.model_facts import ModelFacts

_STEP_TOKENS = 2048
"""Tokens of an engine's step when nobody says: what vLLM takes where it is not its own server."""
_LARGE_DEVICE = 70 * GIB
"""A device with more memory counts as a Hopper if nobody says what it is."""
_CPU_BLOCK = 128
"""Tokens of a KV-cache block in vLLM 0.32; its CPU kernels want multiples of 32."""
_CPU_TOKENS = 1024
"""Tokens that the KV cache on a CPU has for each request at once, if there is the memory."""
_CPU_SHARE = 0.25
"""The most it takes of the memory that the weights leave."""
_GIBS = re.compile(r"[0-9]{1,9}")
_BLOCKS = "num_gpu_blocks_override"
"""The blocks that the cache is to have, on a device or a CPU."""
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"


class Capacity:
    """The question, with everything but the degrees; the release is that of vLLM."""

    def __init__(
        self,
        options: LmiOptions,
        hardware: Hardware,
        facts: ModelFacts,
        environment: Mapping[str, str],
        max_running: int,
        release: Release = NEWEST,
    ) -> None:
        self.options, self.hardware, self.facts = options, hardware, facts
        self.environment, self.max_running, self.release = environment, max_running, release
        self._implementation = options.choice.spec.implementation
        self.counts_as_vllm = self._implementation.counts_memory_as_vllm
        self.utilization = utilization(options, release)
        share = int(hardware.device_memory * self.utilization)
        reserved = options[srv.GPU_RESERVED_MEMORY] * MIB
        self.budget = min(share, hardware.device_memory - reserved)
        """Bytes of one device that the engine may use."""
        length = given_number(options, options.choice.spec.length_option) or 0
        self.chooses_length = length < 0
        """Whether the engine serves as long a sequence as fits."""
        most = facts.shape.max_position_embeddings or 1
        self.longest = max(1, int(length)) if length > 0 else most
        """Tokens of the longest sequence that must fit; 1 where the engine chooses it."""
        space = environment.get(_CPU_SPACE, "")
        is_given = _GIBS.fullmatch(space)
        self.space_on_cpu = int(space) * GIB if is_given else options[vllm.KV_CACHE_MEMORY]
        """Bytes of the cache on the CPU as the user says; 0 if nobody says."""

    def estimate(self, tensor: int, pipeline: int) -> MemoryEstimate:
        memory = self._estimate(tensor, pipeline, self.budget)
        # No more can be kept on the host than there is.
        offloaded = min(int(self.options[vllm.CPU_OFFLOAD] * GIB), memory.weights)
        if offloaded:
            memory = self._estimate(tensor, pipeline, self.budget + offloaded)
        given = passed_number(self.options, _BLOCKS) * memory.block_bytes
        if not given and self.counts_as_vllm:
            given = self.options[vllm.KV_CACHE_MEMORY]
        if given:
            memory = replace(memory, kv_cache=given, less=0, more=0)
        if self.chooses_length:
            memory = replace(memory, length=max(1, min(self.longest, memory.longest)))
        return memory

    def _estimate(self, tensor: int, pipeline: int, budget: int) -> MemoryEstimate:
        slots = adapter_slots(self.options)
        taken = adapter_bytes(self.facts, slots, tensor=tensor, pipeline=pipeline)
        memory = estimate_memory(
            self._shared_facts,
            degrees=(tensor, pipeline),
            budget=budget - taken,
            cache=self._cache(self.options.choice.spec.block_size),
            step=self.step,
            weight_scale=weight_scale(self.options, self.facts),
        )
        # Which modules get adapters differs by model, so they refuse none.
        less, more = memory.less + int(UNSURE * taken), memory.more + taken
        return replace(memory, weights=memory.weights + taken, less=less, more=more)

    @property
    def _shared_facts(self) -> ModelFacts:
        """The model as one of vLLM's copies has it: all of them together have each expert once."""
        facts = without_encoders(self.options, self.facts)
        share = 1 - facts.weights.expert_share * (1 - 1 / copies(self.options))
        cache = facts.cache
        states = self.options.passthrough.get("mamba_ssm_cache_dtype")
        if states and (size := DTYPE_BYTES.get(states.value)):
            cache = replace(cache, states=replace(cache.states, bytes_each=size))
        weights = replace(facts.weights, total=int(facts.weights.total * share))
        return replace(facts, cache=cache, weights=weights)

    @property
    def step(self) -> Step:
        gpu = gpu_of_memory(self.hardware.device_memory)
        capability = self.hardware.capability or (gpu.capability if gpu else 0)
        has_option = find_option(vllm.ENABLE_PREFIX_CACHING.name, self.options.choice.engine)
        supposed = HOPPER if self.hardware.device_memory >= _LARGE_DEVICE else AMPERE
        return Step(
            tokens=self.options[opt.MAX_PREFILL_TOKENS] or _STEP_TOKENS,
            sequences=self.max_running,
            release=self.release,
            capability=capability or supposed,
            graphs=self.counts_as_vllm and not self.options[vllm.ENFORCE_EAGER],
            captured=captured_sizes(self.options),
            partition=layer_partition(self.environment),
            # As the engine decides, where it has no such option.
            prefix_caching=self.options[vllm.ENABLE_PREFIX_CACHING] if has_option else None,
        )

    def estimate_on_cpu(self, tensor: int, pipeline: int) -> MemoryEstimate | None:
        """Return what an engine makes of the space for its cache, of one rank on the host.

        None where nobody says how much that is, and the engine decides.

        Raises:
            PlanError: weights and cache do not fit into the host's memory.
        """
        space, shape = self.space_on_cpu, self.facts.shape
        has_cache = self._implementation.cpu_cache and not shape.is_encoder_decoder
        # Neuron cores have memory of their own.
        is_unknown = not (space or (has_cache and self.hardware.host_memory))
        if is_unknown or self._implementation.device == "nc":
            return None
        cache = self._cache(_CPU_BLOCK)
        facts = self._plain_facts if self._implementation.cpu_cache else self.facts
        layout = cache_layout(facts, degrees=(tensor, pipeline), cache=cache, step=self.step)
        weights = int(
            self.facts.weights.total * weight_scale(self.options, self.facts) / (tensor * pipeline)
        )
        if space and 0 < self.hardware.host_memory < space + weights:
            raise PlanError(
                f"{human_bytes(space)} of KV cache (VLLM_CPU_KVCACHE_SPACE, in GiB) and "
                f"{human_bytes(weights)} of weights do not fit into the host's memory: "
                f"{human_bytes(self.hardware.host_memory)} are available"
            )
        if not space:
            ranks = tensor * pipeline * host_workers(self.options)
            ranks = -(-ranks // max(1, len(find_hosts(self.options, self.environment))))
            space = self._share_of_host(layout, weights, ranks)
        return MemoryEstimate(
            weights=weights,
            draft=self.facts.draft,
            activations=0,
            overhead=0,
            kv_cache=passed_number(self.options, _BLOCKS) * layout.block_bytes or space,
            block_size=layout.block_size,
            block_bytes=layout.block_bytes,
            layout=layout,
            length=cache.length,
            release=self.release,
        )

    @property
    def _plain_facts(self) -> ModelFacts:
        """The model as Transformers counts blocks: as if each layer saw the whole text."""
        layers = self.facts.shape.num_layers
        cache = replace(
            self.facts.cache, layers=layers, wide=None, local=NO_LOCAL, states=NO_STATES
        )
        return replace(self.facts, cache=cache)

    def _share_of_host(self, layout: KvLayout, weights: int, ranks: int) -> int:
        """Return the bytes of the cache of one of so many ranks here, or refuse the model."""
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
        """Return whether the weights fit together with one sequence of the longest kind."""
        least = 1 if self.chooses_length else self.longest
        return estimate.kv_cache > 0 and (not estimate.block_bytes or estimate.longest >= least)

    def surely_fits(self, estimate: MemoryEstimate) -> bool:
        """Return whether it fits by the lower end of what is not known for certain, too."""
        less = estimate.less if self.counts_as_vllm else 0
        return self.fits(replace(estimate, kv_cache=estimate.kv_cache - less))

    def could_fit(self, estimate: MemoryEstimate) -> bool:
        """Tell whether it may fit although the estimate says no: were activations nothing."""
        best = estimate.kv_cache + estimate.step + estimate.more
        if not estimate.block_bytes:
            return best > 0
        return estimate.layout.longest(best // estimate.block_bytes) >= self.longest

    def _cache(self, block_size: int) -> CacheKind:
        given = given_number(self.options, self.options.choice.spec.block_option)
        return CacheKind(
            dtype_bytes=cache_bytes(self.options, self.facts, self.release),
            block_size=int(given or block_size),
            length=self.longest,
            ranks=context_ranks(self.options)[1],
        )


def describe(capacity: Capacity, estimate: MemoryEstimate) -> list[str]:
    """Return what takes the memory of a device, in sentences."""
    lines = []
    if capacity.hardware.devices:
        lines.append(
            f"memory per device: {human_bytes(estimate.weights)} weights "
            f"({capacity.facts.weights.source}), "
            f"{human_bytes(estimate.step)} for a step, "
            f"{human_bytes(max(estimate.kv_cache, 0))} KV cache; "
            f"{human_bytes(capacity.budget)} usable, {capacity.utilization:.0%} of "
            f"{human_bytes(capacity.hardware.device_memory)}"
        )
    if estimate.draft is not None:
        lines.append(str(estimate.draft))
    if capacity.hardware.devices:
        lines += _uncertain(capacity)
    tokens = estimate.num_tokens
    if estimate.block_bytes and capacity.hardware.devices and capacity.counts_as_vllm:
        least, most = estimate.token_range
        lines.append(
            f"KV cache, by what is not known for certain: between {least} and {most} tokens"
        )
        if not capacity.surely_fits(estimate):
            lines.append(
                "it may not start: by the lower of these not one request of the longest kind fits"
            )
    if estimate.block_bytes:
        each = tokens // capacity.max_running
        longest = f", or {estimate.concurrency:.1f} of {estimate.length}"
        lines.append(
            f"KV cache: {estimate.num_blocks} blocks of {estimate.block_size}, "
            f"{tokens} tokens fit at once: {each} for each of {capacity.max_running} requests"
            f"{longest if estimate.length > 1 else ''}"
        )
    return lines


def _uncertain(capacity: Capacity) -> Iterator[str]:
    """Yield what is not counted, and what is not written."""
    if text := uncounted(capacity.facts.unread):
        yield text
    if name := capacity.facts.unknown_class:
        yield f"{name} is not a known model_type: its size is read by the usual fields"
    names = uncounted_arguments(capacity.options, capacity.release)
    if capacity.counts_as_vllm and names:
        yield f"not counted: what these options take or save: {', '.join(names)}"
    if capacity.facts.assumed:
        names = capacity.facts.assumed
        yield f"config.json lacks {', '.join(names)}: the defaults of its class apply"
