"""A container that was given two GPUs of its node: a made-up /dev and nvidia-smi, for real."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import LMI

# Its node has eight; the tool counts those that the container sees.
TOOL = """\
#!/bin/sh
case "$1" in
--query-gpu=uuid,name,memory.total,memory.reserved,compute_cap,driver_version,*)
  echo 'GPU-4444, NVIDIA L40S, 46068, 600, 8.9, 550.54, [N/A]'
  echo 'GPU-5555, NVIDIA L40S, 46068, 600, 8.9, 550.54, [N/A]';;
*) exit 2;;
esac
"""
# A /dev with what Python and Triton need, and the nodes that the container has.
NAMESPACE = """\
set -e
mkdir -p "$0/dev/shm"
for name in null zero random urandom; do
  touch "$0/dev/$name" && mount --bind "/dev/$name" "$0/dev/$name"
done
touch "$0/dev/nvidia4" "$0/dev/nvidia5" "$0/dev/nvidiactl" "$0/dev/nvidia-uvm"
mount --rbind "$0/dev" /dev
mount --bind "$0/bin" /usr/local/bin
export PATH="/usr/local/bin:$PATH"
exec "$@"
"""


class Container:
    """A mount namespace, in which commands are run."""

    def __init__(self, folder: Path, tool: str) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        if tool:
            (folder / "bin" / "nvidia-smi").write_text(tool)
            (folder / "bin" / "nvidia-smi").chmod(0o755)

    def ask(self, word: str, model: Path, **variables: str) -> Any:
        settings = [f"{name}={value}" for name, value in variables.items()]
        command = [*LMI, word, "--json", str(model)]
        done = subprocess.run(
            [*("unshare", "-rm", "sh", "-c", NAMESPACE, self._folder), "env", *settings, *command],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def gpus(self, model: Path, **variables: str) -> dict[str, str]:
        """Return what `doctor` says of the GPUs."""
        # An interpreter without vLLM: to import it takes 10 s, and has nothing to do with GPUs.
        found = self.ask("doctor", model, PYTHON_EXECUTABLE=sys.executable, **variables)
        return next(each for each in found if each["what"] == "GPUs")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no mount namespace here")
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has GPUs")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.rolling_batch=vllm\n")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    config |= {"intermediate_size": 128, "max_position_embeddings": 128, "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_workers_get_the_gpus_that_cuda_counts(model: Path, tmp_path: Path) -> None:
    container = Container(tmp_path, TOOL)
    plan = container.ask("plan", model)
    assert plan["device_groups"] == [["0"], ["1"]]
    assert plan["memory"]["kv_cache"] > 0
    found = container.gpus(model)
    assert found["status"] == "ok"
    what = "2 (0, 1) of at least 44 GiB; NVIDIA L40S, driver 550.54"
    assert found["found"] == what


def test_a_mask_of_the_nodes_numbers_is_an_error_with_a_way_out(
    model: Path, tmp_path: Path
) -> None:
    container = Container(tmp_path, TOOL)
    found = container.gpus(model, CUDA_VISIBLE_DEVICES="4,5")
    assert found["status"] == "error"
    assert "4 is none of the 2 GPUs that CUDA has" in found["found"]
    found = container.gpus(model, CUDA_VISIBLE_DEVICES="GPU-5555")
    assert found["found"].startswith("1 (GPU-5555) of at least 44 GiB")


def test_without_the_drivers_tool_device_nodes_are_counted(model: Path, tmp_path: Path) -> None:
    container = Container(tmp_path, "")
    # What they hold is not known, so all are taken.
    assert container.ask("plan", model)["device_groups"] == [["0", "1"]]
    found = container.gpus(model)
    assert (found["status"], found["found"]) == ("error", "2 (0, 1)")
    assert "NVIDIA_DRIVER_CAPABILITIES" in found["advice"]
