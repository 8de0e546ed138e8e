"""What is taken at once."""

import pytest

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.shares import FREE_BYTES
from tests.support.doubles.service_bench import Bench, Sink


@pytest.mark.parametrize("depth", [500, 600, 900])
def test_a_request_is_not_nested_so_deeply_that_its_worker_cannot_read_it(depth: int) -> None:
    nested: object = 1
    for level in range(depth):
        nested = {"a": nested} if level % 2 else [nested]
    bench = Bench()
    work = (GenerateRequest("a", Sampling(extra={"b": nested})),)
    if depth == 500:
        bench.service.submit(work, Sink())
        assert bench.open() == [1]
        return
    with pytest.raises(RequestError, match="is nested too deeply; accepted: at most 512 levels"):
        bench.service.submit(work, Sink())
    with pytest.raises(RequestError, match="is nested too deeply"):
        bench.service.manage({"b": nested}, Sink())
    assert bench.service.snapshot().open == 0


def test_all_requests_together_have_a_bound_in_bytes() -> None:
    free = "a" * FREE_BYTES
    large = free + "a" * 1000
    bench = Bench(open_bytes=5000)
    bench.submit(prompt=large)
    bench.submit(prompt=large)
    # One that waits counts too.
    bench.submit(prompt=large)
    with pytest.raises(
        UnavailableError, match=r"have 3\d{3} bytes, and .* 6\d{4}; accepted: .* 5000"
    ):
        bench.submit(prompt=large)
    # Another tenant finds room, whatever the first one holds.
    bench.submit(prompt=free + "a" * 500, tenant="b")
    bench.answer(1)
    bench.submit(prompt=large)
    while bench.waiting:
        bench.answer(*bench.workers.requests[0])
    bench.die()
    assert (bench.service.large.size, len(bench.service.large)) == (0, 0)
    # Alone, one may be larger.
    bench.workers.revive(0)
    bench.submit(prompt=free + "a" * 5000)
