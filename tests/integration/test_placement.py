"""Where vLLM's processes run beside Triton's."""

import psutil

from tests.support.serving import Served


def test_an_engine_core_waits_where_its_workers_compute(served: Served) -> None:
    (front_end,) = served.workers("tiny")
    cores = [p for p in front_end.children() if "EngineCore" in " ".join(p.cmdline())]
    assert cores
    for core in cores:
        (worker,) = [p for p in core.children() if "Worker" in " ".join(p.cmdline())]
        affinities = {
            tuple(psutil.Process(thread.id).cpu_affinity() or ()) for thread in core.threads()
        }
        assert affinities == {tuple(worker.cpu_affinity() or ())}
    # What vLLM reserves is left to the front end and the server.
    assert len(front_end.cpu_affinity() or ()) == psutil.cpu_count()
