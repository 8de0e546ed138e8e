#!/usr/bin/env bash
# Run the TensorRT-LLM adapter on the real library. Needs a GPU (two for the MPI half) and an
# interpreter that has tensorrt_llm, such as the one of NVIDIA's image:
#
#     tools/verify_trtllm.sh /usr/bin/python3
#
# It compares the library's signatures with tests/data/signatures/trtllm.json, then runs the
# contract tests of every engine on it: one process, and two ranks under mpirun.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v "${1:-python3}") || { echo "verify_trtllm: no interpreter ${1:-python3}" >&2; exit 1; }

fail() { echo "verify_trtllm: $1" >&2; exit 1; }
command -v nvidia-smi >/dev/null || fail "no nvidia-smi: this needs a machine with a GPU"
gpus=$(nvidia-smi -L | wc -l)
"$python" -c 'import tensorrt_llm' || fail "$python cannot import tensorrt_llm"

make install-server model
# Kept out of the interpreter: pytest for the first step, and for both msgspec, which it may lack.
tools=$PWD/.cache/verify-trtllm
"$python" -m pip install --quiet --upgrade --target "$tools" pytest msgspec
echo "== signatures"
LMI_BACKEND_REAL_TRTLLM=$python PYTHONPATH=$tools:. "$python" -m pytest -q -c /dev/null \
  -p no:cacheprovider --noconftest tests/contract/test_trtllm_signatures.py

modes="trtllm and not mpi"
if [ "$gpus" -gt 1 ]; then modes=trtllm; else echo "verify_trtllm: one GPU, so no ranks" >&2; fi
echo "== contract: $modes"
LMI_BACKEND_REAL_TRTLLM=$python LMI_BACKEND_REAL_TRTLLM_TOOLS=$tools make test PYTEST="tests/contract/test_engine.py -k '$modes'"
