"""What the engine is given: its own arguments, from the options and the degrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmi_backend.options.spec import NOTHING, PREFIX, AnyOption
from lmi_backend.options.table import OPTIONS, find_option

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import Implementation
    from lmi_backend.plan.engine_plan import Explanation
    from lmi_backend.plan.strategy import Degrees


def engine_arguments(
    options: LmiOptions,
    degrees: Degrees,
    max_running: int,
    report: Explanation,
) -> dict[str, Any]:
    """Return the typed arguments under the engine's own names.

    Raises:
        OptionError: two options say different things of one argument.
    """
    engine, implementation = options.choice.engine, options.choice.spec.implementation
    arguments = _Arguments(options, implementation)
    for name in options.values:
        option = find_option(name, engine)
        if option is not None:
            arguments.add(option, options[option])
    for option in OPTIONS:
        if option.lmi_default is not None and option is find_option(option.name, engine):
            _add_default(arguments, option, report)
    arguments.tree |= _sizes(implementation, degrees, max_running)
    if implementation.finish is not None:
        implementation.finish(options, arguments.tree, report.reasons, report.ignore)
    return arguments.tree


def _sizes(implementation: Implementation, degrees: Degrees, max_running: int) -> dict[str, int]:
    """Return what the plan decided, under the engine's own names."""
    names = implementation.sizes
    sizes = {
        names.tensor: degrees.tensor,
        names.pipeline: degrees.pipeline,
        names.running: max_running,
    }
    memory = degrees.memory
    if implementation.cpu_cache and memory and not memory.overhead:
        block_size, num_blocks = implementation.cpu_cache
        sizes |= {block_size: memory.block_size, num_blocks: memory.num_blocks}
    return {name: size for name, size in sizes.items() if name}


def _add_default(arguments: _Arguments, option: AnyOption, report: Explanation) -> None:
    if not arguments.options.is_set(option) and arguments.add(option, option.lmi_default):
        word = str(option.lmi_default).lower()
        report.reasons.append(
            f"{option.name.removeprefix(PREFIX)} {word}: the default of LMI's guide"
        )


class _Arguments:
    """Arguments as a tree: a dot in an argument's name goes into an object."""

    def __init__(self, options: LmiOptions, implementation: Implementation) -> None:
        self.options = options
        self.tree: dict[str, Any] = {}
        self._implementation = implementation
        self._set_by: dict[tuple[str, ...], AnyOption] = {}

    def add(self, option: AnyOption, value: Any) -> bool:
        """Add an option's argument; return whether it has one."""
        path = option.argument_of(self._implementation)
        argument = option.convert(value)
        if not path or argument is NOTHING:
            return False
        names = path.split(".")
        if len(names) > 1 and names[0] in self.options.passthrough:
            raise self.options.error(option, f"belongs into {PREFIX}{names[0]}, which is set too")
        if isinstance(argument, dict):
            self.tree.setdefault(path, {})
            for key, item in argument.items():
                self._set((*names, key), item, option)
        else:
            self._set(tuple(names), argument, option)
        return True

    def _set(self, names: tuple[str, ...], value: Any, option: AnyOption) -> None:
        parent = self.tree
        for name in names[:-1]:
            parent = parent.setdefault(name, {})
        earlier = self._set_by.setdefault(names, option)
        if parent.setdefault(names[-1], value) != value:
            problem = f"contradicts {earlier.name}: both set {'.'.join(names)}"
            raise self.options.error(option, problem)
