"""What looks up the adapters of tokens is let go where vLLM's own code raises."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import cpu, fast_paths, names


class _States:
    """A part of larger states."""

    shape = (1, 4)
    nbytes = 4

    def dim(self) -> int:
        return 2

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: 16)

    def storage_offset(self) -> int:
        return 4

    def stride(self, _: int) -> int:
        return 4

    def __len__(self) -> int:
        return 1


def _wrapper(raising: str) -> type:
    class Wrapper:
        failed = False

        def __init__(self) -> None:
            self.seen: list[Any] = []

        def add_expand(self, y: Any) -> None: ...

        def add_lora_embedding(self, y: Any) -> None: ...

        def add_lora_logits(self, y: Any, x: Any) -> None:
            self.seen.append(self.sampler_indices)

        @property
        def sampler_indices(self) -> list[int]:
            return self._given("sampler_indices", [7])

        @property
        def token_lora_indices(self) -> list[int]:
            return self._given("token_lora_indices", [1, 2])

        def _given(self, name: str, found: list[int]) -> list[int]:
            if name == raising and not Wrapper.failed:
                Wrapper.failed = True
                raise RuntimeError(name)
            return found

    return Wrapper


class CpuPlatform:
    """vLLM's, as far as it goes."""

    def is_cpu(self) -> bool:
        return True

    @classmethod
    def get_punica_wrapper(cls) -> str:
        return "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return what applies LoRA in a process, whose vLLM raises once for a member."""

    def make(raising: str = "") -> Any:
        monkeypatch.setattr(fast_paths, "_off", {})
        monkeypatch.setattr(cpu, "_subclass", cache(cpu._subclass.__wrapped__))
        monkeypatch.setitem(vars(names), "PunicaWrapperCPU", _wrapper(raising))
        monkeypatch.setitem(vars(names), "current_platform", CpuPlatform())
        cpu.install_lora_rows()
        module, _, name = names.current_platform.get_punica_wrapper().rpartition(".")
        return getattr(import_module(module), name)()

    return make


@pytest.mark.parametrize(
    ("raising", "seen"), [("", [[2], [7]]), ("token_lora_indices", [[7], [7]])]
)
def test_a_step_goes_on_where_it_raises(
    install: Callable[[str], Any], raising: str, seen: list[list[int]]
) -> None:
    one = install(raising)
    one.add_lora_logits([], _States())
    one.seen.append(one.sampler_indices)
    assert one.seen == seen
    assert fast_paths.is_on("lora_rows") is not bool(raising)


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "async_tensor_h2d", None)


def _pins(data: Any, device: str = "cpu", pin_memory: bool = True, *, last: bool = True) -> Any:
    return data, device, pin_memory, last


def _asks(data: Any, device: str, pin_memory: bool, last: bool = True) -> Any:
    return data, device, pin_memory, last


def test_indices_are_not_pinned_where_nobody_says_so(
    monkeypatch: pytest.MonkeyPatch, install: Callable[[str], Any]
) -> None:
    monkeypatch.setattr(_pins, "__defaults__", _pins.__defaults__)
    for function in (_pins, _asks):
        monkeypatch.setitem(vars(names), "async_tensor_h2d", function)
        install("")
        assert fast_paths.is_on("lora_rows")
    assert _pins(1) == (1, "cpu", False, True)
    assert _pins(1, "gpu", True, last=False) == (1, "gpu", True, False)
    assert _asks(1, "cpu", False) == (1, "cpu", False, True)
