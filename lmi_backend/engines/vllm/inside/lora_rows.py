"""Requests of the model itself and of its adapters in one step, where LoRA runs on a CPU.

vLLM gives a token without an adapter the slot -1. On a CPU that picks the weights of the last slot,
so the model itself answers as an adapter does. Here such rows stay as they are.

It also computes the logits of one prompt's tokens. It looks up their adapters as if they were the
last tokens of all requests of the step. With several requests the numbers differ, and its engine
crashes with all its requests. Here the adapters are those of the prompt's own tokens.

0.22 and 0.23 pin the memory of the adapters' indices, for which torch wants a GPU: no engine with
LoRA starts on a CPU. Here nothing is pinned.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.engines.vllm.inside import fast_paths, names

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS: Final = "_lmi_backend_rows"
"""Member of a wrapper with the adapters of the tokens whose logits are computed."""
_PINS: Final = "pin_memory"
_COPIED_BYTES: Final = 64 << 20
"""Most logits that are copied before they are changed in place: 20 ms, where a prompt has taken
seconds."""


def install() -> None:
    """Have this process look them up so, if its model is on the CPU."""
    fast_paths.probe("lora_rows", "a class that applies LoRA on a CPU", _install)


def _install() -> None:
    if not names.current_platform.is_cpu():
        return
    wrapper = names.PunicaWrapperCPU
    _keep_rows(wrapper)
    own, indices = _parts(wrapper)
    signature = inspect.signature(own)
    if names.async_tensor_h2d is not None:
        _pin_nothing(names.async_tensor_h2d)

    def turn_off(error: Exception) -> None:
        wrapper.add_lora_logits, wrapper.sampler_indices = own, indices
        came = f"{type(error).__name__}: {error}"
        fast_paths.turn_off("lora_rows", "adapters of tokens that can be looked up", came)

    def add(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
            logits = given["y"]
            setattr(self, _ROWS, _rows(self, given["x"]))
        except Exception as error:  # noqa: BLE001  the step of all requests goes on without
            turn_off(error)
            return own(self, *args, **kwargs)
        if getattr(self, _ROWS) is None:
            return own(self, *args, **kwargs)
        before = logits.clone() if logits.nbytes <= _COPIED_BYTES else None
        try:
            return own(self, *args, **kwargs)
        except Exception as error:
            # Nothing continues from rows that may be half written.
            if before is None:
                raise
            setattr(self, _ROWS, None)
            turn_off(error)
            logits.copy_(before)
            return own(self, *args, **kwargs)
        finally:
            setattr(self, _ROWS, None)

    def chosen(self: Any) -> Any:
        rows = getattr(self, _ROWS, None)
        if rows is not None:
            return rows
        try:
            return indices.__get__(self)
        except Exception as error:  # noqa: BLE001  as above
            turn_off(error)
            return indices.__get__(self)

    wrapper.add_lora_logits, wrapper.sampler_indices = add, property(chosen)


def _keep_rows(wrapper: Any) -> None:
    """Have the rows of tokens without an adapter stay as they are."""
    slots: dict[str, Callable[[Any], Any]] = {
        # Layers call it by add_lora_linear, or alone where they are sharded.
        "add_expand": lambda self: self.token_lora_indices,
        "add_lora_embedding": lambda self: self.token_lora_indices,
        "add_lora_logits": lambda self: self.sampler_indices,
    }
    for name, slots_of in slots.items():
        if (function := getattr(wrapper, name, None)) is not None:
            setattr(wrapper, name, _keeping(function, slots_of))


def _keeping(function: Callable[..., Any], slots_of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that adds an adapter's part to rows, and leaves those without one alone.

    Args:
        function: of vLLM, with the rows as its first argument.
        slots_of: returns the slot of each row; it is below 0 where there is no adapter.
    """

    @wraps(function)
    def add(self: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        slots = slots_of(self)
        rows: Any = y.view(-1, y.shape[-1]) if hasattr(y, "view") else ()
        if len(rows) != len(slots):
            return function(self, y, *args, **kwargs)
        without = (slots < 0).nonzero().flatten()
        before = rows[without].clone()
        added = function(self, y, *args, **kwargs)
        rows[without] = before
        return added

    return add


def _parts(wrapper: Any) -> tuple[Any, Any]:
    """Return what is replaced in a class of vLLM's: a function and a property.

    Raises:
        TypeError: it, or what these stand on, is of another kind.
    """
    members = ("add_lora_logits", "sampler_indices", "token_lora_indices")
    own, indices, tokens = (getattr(wrapper, name) for name in members)
    if not (callable(own) and isinstance(indices, property) and isinstance(tokens, property)):
        raise TypeError("its add_lora_logits and its indices are of another kind")
    if lacking := {"x", "y"} - inspect.signature(own).parameters.keys():
        raise TypeError(f"add_lora_logits takes no {', '.join(sorted(lacking))}")
    return own, indices


def _pin_nothing(function: Any) -> None:
    """Have a function pin no memory, if it does where its caller does not say."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.name == _PINS and each.default is True for each in parameters):
        function.__defaults__ = tuple(
            each.default if each.name != _PINS else False
            for each in parameters
            if each.kind is not each.KEYWORD_ONLY and each.default is not each.empty
        )


def _rows(wrapper: Any, states: Any) -> Any:
    """Return the adapters of the tokens of some hidden states; None if they are the last tokens.

    What is a part of the states of a step is one prompt's: the last tokens are picked, so copied.
    """
    if states.dim() < 2 or states.untyped_storage().nbytes() <= states.nbytes:
        return None
    first = states.storage_offset() // states.stride(0)
    rows = wrapper.token_lora_indices[first : first + states.shape[0]]
    return rows if len(rows) == len(states) else None
