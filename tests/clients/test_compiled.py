"""vLLM compiles on this server, as users' do; others of the tests do not."""

import json
from pathlib import Path

from tests.support.servers.serving import Served


def test_kernels_are_compiled_and_no_headers_ahead(served: Served) -> None:
    """In its temporary folder each worker would compile them anew, 10 s of a core."""
    messages = [{"role": "user", "content": "What is the capital of Italy?"}]
    chat = {"messages": messages, "max_tokens": 20, "logprobs": True, "top_logprobs": 2}
    status, answer = served.generate("tiny", {"request": json.dumps(chat)})
    assert status == 200
    assert json.loads(answer["response"])["choices"][0]["logprobs"]["content"]
    (worker,) = served.workers("tiny")
    kernels = Path(worker.environ()["TORCHINDUCTOR_CACHE_DIR"])
    family = [worker, *worker.children(recursive=True)]
    maps = [Path(each.path) for process in family for each in process.memory_maps()]
    assert any(path.is_relative_to(kernels) for path in maps)
    assert not [*Path(worker.environ()["TMPDIR"]).rglob("*.gch")]
