"""How to distribute a model: one device, tensor parallel on one node, then stages over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmi_backend.errors import PlanError
from lmi_backend.options.table import common as opt
from lmi_backend.plan.capacity import describe
from lmi_backend.plan.engine_plan import Degrees, Explanation
from lmi_backend.printable import human_bytes
from lmi_backend.sizing.model_facts import divisors, valid_tensor_degrees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.capacity import Capacity
    from lmi_backend.plan.hardware import Hardware
    from lmi_backend.sizing.memory import MemoryEstimate


class Strategy:
    """Chooses the degrees; there is no capacity where the model is not known."""

    def __init__(
        self,
        options: LmiOptions,
        hardware: Hardware,
        capacity: Capacity | None,
        report: Explanation,
    ) -> None:
        self.options, self.hardware = options, hardware
        self.capacity, self.report = capacity, report
        self._spec = options.choice.spec
        self._facts = capacity.facts if capacity else None
        self._measured = capacity if hardware.device_memory else None
        """The capacity, if the memory of the devices is known too."""
        self._total = len(hardware.devices) * hardware.nodes
        self._pipeline = options[opt.PIPELINE_PARALLEL_DEGREE]
        self._is_pipeline_free = not options.is_set(opt.PIPELINE_PARALLEL_DEGREE)

    def choose(self) -> Degrees:
        """Return the degrees, or refuse a model that does not fit."""
        degrees = self._choose()
        if self.capacity and degrees.memory:
            self.report.reasons.extend(describe(self.capacity, degrees.memory))
        return degrees

    def _choose(self) -> Degrees:
        if not self.hardware.devices:
            return self._on_cpu()
        if self._pipeline > self._total:
            problem = f"needs {self._pipeline} devices; {self._total} usable"
            raise self.options.error(opt.PIPELINE_PARALLEL_DEGREE, problem)
        degree = self.options[opt.TENSOR_PARALLEL_DEGREE]
        is_set = self.options.is_set(opt.TENSOR_PARALLEL_DEGREE)
        if is_set and degree != "max":
            return self._check(self._given(int(degree)))
        # LMI's guide: 1 for its vLLM images, max for the TensorRT-LLM one.
        if not is_set and self._measured and not self._spec.why_all_devices:
            return self._smallest(self._measured)
        return self._check(self._all(is_set))

    def _on_cpu(self) -> Degrees:
        degree = self.options[opt.TENSOR_PARALLEL_DEGREE]
        tensor = 1 if degree == "max" else int(degree)
        word = f"{degree} was" if self.options.is_set(opt.TENSOR_PARALLEL_DEGREE) else "nothing was"
        self.report.reasons.append(
            f"tensor parallel degree {tensor}: no device is visible, {word} set"
        )
        self._check_heads(tensor)
        if self._pipeline > 1 and (problem := self._spec.implementation.cpu_pipeline):
            raise self.options.error(
                opt.PIPELINE_PARALLEL_DEGREE,
                f"cannot be served on the CPU: {problem}; use {opt.TENSOR_PARALLEL_DEGREE.name}",
            )
        memory = self.capacity.estimate_on_cpu(tensor, self._pipeline) if self.capacity else None
        if memory and self.capacity and not self.capacity.fits(memory):
            if not self.capacity.space_on_cpu:
                self.report.notes.append(
                    f"a request may have {memory.longest} tokens, not the model's "
                    f"{self.capacity.longest}: more do not fit into {human_bytes(memory.kv_cache)} "
                    "of KV cache (VLLM_CPU_KVCACHE_SPACE, in GiB, sets another size)"
                )
                return Degrees(tensor, self._pipeline, memory)
            raise PlanError(
                f"a KV cache of {human_bytes(memory.kv_cache)} holds {memory.longest} tokens, "
                f"less than one sequence of {self.capacity.longest}; set option.max_model_len to "
                f"{memory.longest} or less, or VLLM_CPU_KVCACHE_SPACE (GiB) to more"
            )
        return Degrees(tensor, self._pipeline, memory)

    def _given(self, tensor: int) -> Degrees:
        degrees = Degrees(tensor, self._pipeline)
        if degrees.size > self._total:
            is_tensor = self.options.is_set(opt.TENSOR_PARALLEL_DEGREE) and tensor > 1
            option = opt.TENSOR_PARALLEL_DEGREE if is_tensor else opt.PIPELINE_PARALLEL_DEGREE
            problem = f"needs {degrees.size} devices ({tensor} x {self._pipeline})"
            raise self.options.error(option, f"{problem}; {self._total} usable")
        self._check_heads(tensor)
        self.report.reasons.append(f"tensor parallel degree {tensor}: as set")
        return degrees

    def _check_heads(self, tensor: int) -> None:
        if self._facts is None or tensor in valid_tensor_degrees(self._facts, tensor):
            return
        accepted = ", ".join(map(str, valid_tensor_degrees(self._facts, max(tensor, self._total))))
        problem = (
            f"does not divide the model's {self._facts.shape.num_heads} attention heads "
            f"({self._facts.shape.num_kv_heads} KV heads); degrees that do: {accepted}"
        )
        raise self.options.error(opt.TENSOR_PARALLEL_DEGREE, problem)

    def _all(self, is_given: bool) -> Degrees:
        """Use every device for one copy, as far as the heads allow."""
        nodes = self.hardware.nodes
        limit = self._total // (self._pipeline if not self._is_pipeline_free else nodes)
        unknown = "the size of the model or of the devices is not known"
        reason = "max was set" if is_given else self._spec.why_all_devices or unknown
        pipeline = nodes if self._is_pipeline_free else self._pipeline
        degrees = self._valid(limit)
        tensor = degrees[-1]
        staged = [degree for degree in degrees if self._can_stage(limit, degree, pipeline)]
        if tensor == limit or not staged or not self._is_pipeline_free:
            self.report.reasons.append(f"tensor parallel degree {tensor}: {reason}, {limit} usable")
            if tensor != limit:
                self.report.notes.append(
                    f"tensor parallel degree {tensor}, capped from {limit}: {self._heads()}"
                )
            return self._say_stages(Degrees(tensor, pipeline))
        # Heads do not divide by all devices, but stages may: 12 heads on 8 devices are 4 x 2.
        stages = limit // staged[-1]
        self.report.reasons.append(f"tensor parallel degree {staged[-1]}: {reason}, {limit} usable")
        self.report.notes.append(
            f"pipeline parallel degree {pipeline * stages}, instead of tensor parallel degree "
            f"{limit}: {self._heads()}"
        )
        return Degrees(staged[-1], pipeline * stages)

    def _can_stage(self, limit: int, degree: int, pipeline: int) -> bool:
        """Tell whether stages of this degree use all devices, each with a layer at least."""
        layers = self._facts.shape.num_layers if self._facts else limit
        return limit % degree == 0 and pipeline * (limit // degree) <= layers

    def _smallest(self, capacity: Capacity) -> Degrees:
        """Climb the ladder to the fewest devices that hold the model and one long sequence.

        Where only the middle of the estimate's range fits, more devices are used if there are.
        """
        likely = None
        for degrees in self._ladder():
            memory = capacity.estimate(degrees.tensor, degrees.pipeline)
            tried = Degrees(degrees.tensor, degrees.pipeline, memory)
            if capacity.surely_fits(memory):
                break
            if likely is None and capacity.fits(memory):
                likely = tried
        else:
            if likely is None:
                self._warn_or_refuse(capacity, tried, memory)
            tried, likely = likely or tried, None
        self._explain(tried)
        if likely is not None:
            self.report.notes.append(
                f"{likely.size} device(s) hold it by the estimate, and not by its lower end: "
                f"option.tensor_parallel_degree={likely.tensor} tries them"
            )
        return tried

    def _ladder(self) -> Iterator[Degrees]:
        per_node, nodes = len(self.hardware.devices), self.hardware.nodes
        if not self._is_pipeline_free:
            limit = self._total // self._pipeline
            yield from (Degrees(tensor, self._pipeline) for tensor in self._valid(limit))
            return
        # Of a node alone some devices may be left over.
        valid = self._valid(per_node)
        degrees = [tensor for tensor in valid if per_node % tensor == 0]
        yield from (Degrees(tensor, 1) for tensor in (valid if nodes == 1 else degrees))
        stages = per_node // degrees[-1]
        most = self._facts.shape.num_layers if self._facts else 1
        yield from (
            Degrees(degrees[-1], stages * node)
            for node in range(1, nodes + 1)
            if 1 < stages * node <= most
        )

    def _explain(self, degrees: Degrees) -> None:
        if degrees.size == 1:
            self.report.reasons.append("tensor parallel degree 1: the model fits on one device")
            return
        self.report.reasons.append(
            f"tensor parallel degree {degrees.tensor}: the fewest devices it fits on are "
            f"{degrees.size}, of {human_bytes(self.hardware.device_memory)} each"
        )
        self._say_stages(degrees)

    def _say_stages(self, degrees: Degrees) -> Degrees:
        if degrees.pipeline > 1 and self._is_pipeline_free:
            self.report.reasons.append(
                f"pipeline parallel degree {degrees.pipeline}: tensor parallelism stays within a "
                f"node of {len(self.hardware.devices)}"
            )
        return degrees

    def _check(self, degrees: Degrees) -> Degrees:
        """Add the memory, or refuse what cannot fit."""
        capacity = self._measured
        if capacity is None:
            return degrees
        memory = capacity.estimate(degrees.tensor, degrees.pipeline)
        if not capacity.fits(memory):
            self._warn_or_refuse(capacity, degrees, memory)
        return Degrees(degrees.tensor, degrees.pipeline, memory)

    def _warn_or_refuse(self, capacity: Capacity, degrees: Degrees, memory: MemoryEstimate) -> None:
        """Refuse what cannot fit; what only the estimate of a step's needs forbids is warned of."""
        if capacity.could_fit(memory):
            self.report.notes.append(
                "by the estimate the model barely does not fit; the engine decides"
            )
            return
        split = f"{degrees.tensor} x {degrees.pipeline} devices" if degrees.size > 1 else "1 device"
        longest = memory.layout.blocks_for(capacity.longest) * memory.block_bytes
        way_out = "more or larger devices, more nodes, or a quantised model are needed"
        if memory.longest:
            way_out = f"option.max_model_len={memory.longest} or less fits, or more devices"
        raise PlanError(
            f"the model does not fit on {split}: each needs {human_bytes(memory.weights)} for "
            f"weights and {human_bytes(longest)} for one sequence of {capacity.longest} tokens, "
            f"and may use {human_bytes(capacity.budget)} of "
            f"{human_bytes(self.hardware.device_memory)}; {way_out}"
        )

    def _valid(self, limit: int) -> list[int]:
        if self._facts is None:
            # Nothing is known that forbids one of them; those that use all devices are enough.
            return divisors(limit, limit)
        return valid_tensor_degrees(self._facts, limit)

    def _heads(self) -> str:
        heads = self._facts.shape.num_heads if self._facts else 0
        return f"the model's {heads} attention heads do not divide by it"
