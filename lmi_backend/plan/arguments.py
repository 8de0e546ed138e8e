"""What the engine is given: its own arguments, from the options and the degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.errors import OptionError
from lmi_backend.options.option import NOTHING, PREFIX, adapter_of
from lmi_backend.options.table import OPTIONS, find_option, speculative, trtllm, vllm
from lmi_backend.options.table import common as opt

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.options.option import Option
    from lmi_backend.plan.engine_plan import Explanation
    from lmi_backend.plan.strategy import Degrees

_ACCEPTANCE = "per_request_spec_decode_metrics"
"""vLLM refuses it where nothing is drafted."""
_DRAFTED_TOKENS = 5
"""Tokens to draft where nobody says: what LMI's guide documents."""
_BUILDING = ("quant_config", "calib_config", "build_config")
_SIZES = {
    "vllm": ("tensor_parallel_size", "pipeline_parallel_size", "max_num_seqs"),
    "trtllm": ("tensor_parallel_size", "pipeline_parallel_size", "max_batch_size"),
    "transformers": ("tensor_parallel_size", "pipeline_parallel_size", "max_batch_size"),
    "neuronx": ("tensor_parallel_size", "pipeline_parallel_size", "batch_size"),
}


def engine_arguments(
    options: LmiOptions,
    degrees: Degrees,
    max_running: int,
    why: Explanation,
) -> dict[str, Any]:
    """Return the typed arguments under the engine's own names.

    Raises:
        OptionError: two options say different things of one argument.
    """
    engine = options.choice.engine
    adapter = adapter_of(engine)
    arguments = _Arguments(options, adapter)
    for name in options.values:
        option = find_option(name, engine)
        if option is not None:
            arguments.add(option, options[option])
    for option in OPTIONS:
        if option.lmi_default is not None and option is find_option(option.name, engine):
            _add_default(arguments, option, why)
    if adapter == "echo":
        return arguments.tree | {"max_running": max_running}
    arguments.tree |= dict(
        zip(_SIZES[adapter], (degrees.tensor, degrees.pipeline, max_running), strict=True)
    )
    if adapter == "vllm":
        _finish_vllm(options, arguments.tree, why)
    elif adapter == "trtllm":
        _finish_trtllm(options, arguments.tree, why)
    elif adapter == "transformers" and degrees.memory and not degrees.memory.overhead:
        # On the CPU the library would take most of the host's memory.
        arguments.tree["page_size"] = degrees.memory.block_size
        arguments.tree["num_blocks"] = degrees.memory.num_blocks
    return arguments.tree


def _add_default(arguments: _Arguments, option: Option[Any], why: Explanation) -> None:
    if not arguments.options.is_set(option) and arguments.add(option, option.lmi_default):
        word = str(option.lmi_default).lower()
        why.reasons.append(f"{option.name.removeprefix(PREFIX)} {word}: the default of LMI's guide")


class _Arguments:
    """Arguments as a tree: a dot in an argument's name goes into an object."""

    def __init__(self, options: LmiOptions, adapter: str) -> None:
        self.options = options
        self.tree: dict[str, Any] = {}
        self._adapter = adapter
        self._set_by: dict[tuple[str, ...], Option[Any]] = {}

    def add(self, option: Option[Any], value: Any) -> bool:
        """Add an option's argument; return whether it has one."""
        path = option.engine_args.get(self._adapter)
        argument = option.convert(value)
        if path is None or argument is NOTHING:
            return False
        names = path.split(".")
        if len(names) > 1 and names[0] in self.options.passthrough:
            problem = f"belongs into {PREFIX}{names[0]}, which is set too"
            raise self.options.error(option, problem)
        if isinstance(argument, dict):
            self.tree.setdefault(path, {})
            for key, item in argument.items():
                self._set((*names, key), item, option)
        else:
            self._set(tuple(names), argument, option)
        return True

    def _set(self, names: tuple[str, ...], value: Any, option: Option[Any]) -> None:
        place = self.tree
        for name in names[:-1]:
            place = place.setdefault(name, {})
        earlier = self._set_by.setdefault(names, option)
        if place.setdefault(names[-1], value) != value:
            problem = f"contradicts {earlier.name}: both set {'.'.join(names)}"
            raise self.options.error(option, problem)


def _finish_vllm(options: LmiOptions, tree: dict[str, Any], why: Explanation) -> None:
    if options[opt.TASK] in ("generate", "text-generation"):
        tree["runner"] = "generate"
    if options[vllm.ENABLE_LORA]:
        tree.setdefault("max_loras", vllm.MAX_LORAS.default)
    draft = tree.get("speculative_config")
    if not draft:
        if tree.pop(_ACCEPTANCE, None) is not None:
            why.notes.append("record_acceptance_rate is ignored: there is no speculative decoding")
        return
    if "prompt_lookup_max" in draft or draft.get("model") == "[ngram]":
        draft.setdefault("method", "ngram")
        draft.pop("model", None)
    if "num_speculative_tokens" not in draft and not options.is_set(speculative.SPECULATIVE_CONFIG):
        draft["num_speculative_tokens"] = _DRAFTED_TOKENS
        why.reasons.append(f"{_DRAFTED_TOKENS} drafted tokens: the default of LMI's guide")


def _finish_trtllm(options: LmiOptions, tree: dict[str, Any], why: Explanation) -> None:
    per_channel, per_token = options[trtllm.PER_CHANNEL], options[trtllm.PER_TOKEN]
    if options.values.get(trtllm.QUANTIZE.name) != "smoothquant":
        if per_channel or per_token:
            why.notes.append("smoothquant_per_… is ignored: option.quantize is not smoothquant")
    elif per_channel or per_token:
        word = f"PER_{'CHANNEL' if per_channel else 'TENSOR'}"
        word += f"_PER_{'TOKEN' if per_token else 'TENSOR'}"
        tree["quant_config"]["quant_algo"] = f"W8A8_SQ_{word}_PLUGIN"
    backend = options.passthrough.get("backend")
    if backend is None or backend.value != "tensorrt":
        _refuse_building(options)


def _refuse_building(options: LmiOptions) -> None:
    """Refuse what is only read while an engine is built: PyTorch's LLM takes no such argument."""
    for name, setting in options.settings.items():
        option = find_option(name, "trtllm")
        place = option.engine_args.get("trtllm", option.plan_field) if option else ""
        if any(config in place for config in _BUILDING):
            problem = (
                "is read only while a TensorRT engine is built; set option.backend=tensorrt, or "
                "leave it out and use a checkpoint that is quantised already"
            )
            raise OptionError(
                problem, option=setting.name, value=setting.shown, origin=setting.origin
            )
