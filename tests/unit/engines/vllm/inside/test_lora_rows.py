"""What looks up the adapters of tokens is let go where vLLM's own code raises."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import holds, lora_rows, names


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
    monkeypatch.setattr(holds, "_off", {})
    monkeypatch.setitem(vars(names), "PunicaWrapperCPU", wrapper)
    platform = SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(vars(names), "current_platform", platform)
    lora_rows.install()
    one = wrapper()
    one.add_lora_logits(None, _States())
    assert one.sampler_indices == [7]
    one.seen.append(one.sampler_indices)
    assert one.seen == seen
    assert holds.is_held("lora_rows") is not bool(raising)
