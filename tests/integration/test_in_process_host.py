"""Our models in a host that is no tritonserver: NVIDIA Dynamo's loads them into its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

from lmi_backend.cli.main import main
from lmi_backend.supervisor.installation import find_server
from tests.support.run.places import ROOT
from tests.support.run.waiting import HANG_SECONDS
from tests.support.servers.serving import write_properties


def test_a_host_that_passes_tensors_alone_gets_answers(tmp_path: Path) -> None:
    """Without a name, parameters or ports; an alias model answers there too."""
    echo = write_properties(tmp_path / "echo", {"option.rolling_batch": "echo"})
    repository = tmp_path / "repository"
    assert main(["convert", str(echo), "--repository", str(repository), "--clients", "infer"]) == 0
    server = find_server(tmp_path)
    folder = server.libraries[0] if server.libraries else server.binary.parents[1] / "lib"
    (library,) = folder.glob("libtritonserver*.so")
    text, six = "The capital of France is", json.dumps({"max_tokens": 6})
    calls = [
        ("echo", {"text_input": text, "sampling_parameters": six}),
        ("echo", {"text_input": text, "sampling_parameters": json.dumps({"top_p": 7})}),
        ("echo_infer", {"text_input": text, "sampling_parameters": six}),
    ]
    words = (str(library), str(server.backends), str(repository))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.servers.in_process_host", *words],
        env=server.environment(os.environ),
        cwd=ROOT,
        input="".join(f"{json.dumps(call)}\n" for call in calls),
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    streamed, refused, whole = map(json.loads, done.stdout.splitlines()[1:])
    # vLLM's backend puts the prompt before the answer; echo repeats its words.
    answer = f"{text}{text}The"
    assert "".join(each["text_output"] for each in streamed) == answer
    assert whole == [{"text_output": answer}]
    assert len(refused) == 1
    assert "top_p" in refused[0]
    # It opens no port of Triton's.
    assert "is open over" not in done.stderr
