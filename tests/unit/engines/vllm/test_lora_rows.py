"""What looks up the adapters of tokens is let go where vLLM's own code raises."""

from contextlib import nullcontext
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


class _Logits(list[int]):
    """Logits that are changed in place."""

    nbytes = 1

    def clone(self) -> list[int]:
        return list(self)

    def copy_(self, other: list[int]) -> None:
        self[:] = other


def _wrapper(raising: str) -> type:
    class Wrapper:
        failed = False

        def __init__(self) -> None:
            self.seen: list[Any] = []

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


@pytest.mark.parametrize(
    ("raising", "seen"),
    [("", [[2], [7]]), ("token_lora_indices", [[7], [7]]), ("sampler_indices", [[2], [7]])],
)
def test_a_step_goes_on_where_it_raises(
    monkeypatch: pytest.MonkeyPatch, raising: str, seen: list[list[int]]
) -> None:
    wrapper = _wrapper(raising)
    monkeypatch.setattr(fast_paths, "_off", {})
    monkeypatch.setitem(vars(names), "PunicaWrapperCPU", wrapper)
    platform = SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    cpu.install_lora_rows()
    one = wrapper()
    one.add_lora_logits(_Logits(), _States())
    assert one.sampler_indices == [7]
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


def test_indices_are_not_pinned_where_nobody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pins, "__defaults__", _pins.__defaults__)
    for function in (_pins, _asks):
        monkeypatch.setitem(vars(names), "async_tensor_h2d", function)
        monkeypatch.setattr(fast_paths, "_off", {})
        monkeypatch.setitem(vars(names), "PunicaWrapperCPU", _wrapper(""))
        platform = SimpleNamespace(is_cpu=lambda: True)
        monkeypatch.setitem(vars(names), "current_platform", platform)
        cpu.install_lora_rows()
        assert fast_paths.is_on("lora_rows")
    assert _pins(1) == (1, "cpu", False, True)
    assert _pins(1, "gpu", True, last=False) == (1, "gpu", True, False)
    assert _asks(1, "cpu", False) == (1, "cpu", False, True)


class _Halving:
    """A wrapper whose function raises after a part of its work, for other adapters than its own."""

    sampler_indices = property(lambda _: [7, 7])
    token_lora_indices = property(lambda _: [1, 2])

    def add_lora_logits(self, y: _Logits, x: Any) -> None:
        y[0] += 1
        if self.sampler_indices != [7, 7]:
            raise RuntimeError("other adapters")
        y[1] += 1


@pytest.mark.parametrize(
    ("nbytes", "logits", "is_held"), [(1, [11, 21], False), (1 << 40, [11, 20], True)]
)
def test_rows_that_are_half_written_are_written_anew_or_end_the_step(
    monkeypatch: pytest.MonkeyPatch, nbytes: int, logits: list[int], is_held: bool
) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})
    wrapper = type("Wrapper", (_Halving,), dict(vars(_Halving)))
    monkeypatch.setitem(vars(names), "PunicaWrapperCPU", wrapper)
    platform = SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    cpu.install_lora_rows()
    one, y = wrapper(), _Logits([10, 20])
    y.nbytes = nbytes
    with nullcontext() if not is_held else pytest.raises(RuntimeError, match="other adapters"):
        one.add_lora_logits(y, _States())
    assert (y, fast_paths.is_on("lora_rows")) == (logits, is_held)
    assert one.sampler_indices == [7, 7]
