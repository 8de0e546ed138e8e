"""Programs that others wrote, each in a process of its own, against one server."""

import functools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.frontend.http.api_keys import hash_of
from tests.support.interpreter.compiling import compiling
from tests.support.run.places import CLIENTS_NODE, CLIENTS_PYTHON, LORA
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties

SCRIPTS = Path(__file__).parent / "scripts"
KEY = "a-key"
ResultsOf = Callable[..., Any]


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on vLLM with its LoRA adapter; `small`, without an OpenAI server of its engine's."""
    folder = tmp_path_factory.mktemp("models")
    more: dict[str, Any] = {
        "option.log_requests": "true",
        "option.enable_auto_tool_choice": "true",
        "option.tool_call_parser": "hermes",
        "option.served_model_name": "rome",
        # The model is so small that it writes white space without end where a grammar lets it.
        "option.structured_outputs_config": json.dumps(
            {"backend": "xgrammar", "disable_any_whitespace": True}
        ),
    }
    tiny = write_properties(folder / "tiny", tiny_properties | more)
    (tiny / "adapters").mkdir()
    (tiny / "adapters" / "wrong").symlink_to(LORA)
    kept = ("option.model_id", "option.pythonExecutable", "option.dtype")
    one_at_once = {
        "option.rolling_batch": "disable",
        "option.max_rolling_batch_size": 1,
        # A body of three prompts takes three places.
        "job_queue_size": 2,
    }
    small = write_properties(
        folder / "small", {name: tiny_properties[name] for name in kept} | one_at_once
    )
    keys = folder / "keys"
    keys.write_text(f"tester {hash_of(KEY)} operator\n", encoding="utf-8")
    with compiling(), serve([tiny, small], folder, "--api-keys", str(keys)) as server:
        wait_for(lambda: server.ask("/ping")[0] == 200)
        yield server


@pytest.fixture(scope="session")
def results_of(served: Served) -> ResultsOf:
    """Run a script once and return what its functions returned, by name."""

    def run(script: str, model: str = "tiny", **only: str) -> Any:
        return run_script(script, URL=f"http://{served.front_end}", KEY=KEY, MODEL=model, **only)

    return run


@pytest.fixture(scope="session")
def triton_results_of(ensemble_server: Served) -> ResultsOf:
    """The same for scripts that reach Triton's own ports."""
    server = ensemble_server
    ports = {"HTTP": server.http, "GRPC": server.grpc, "URL": f"http://{server.front_end}"}
    return lambda script: run_script(script, **ports)


@functools.cache
def run_script(script: str, python: Path = CLIENTS_PYTHON, **reached: str) -> Any:
    """Run a script, of Python or Node.js, once; return what its functions returned, by name."""
    path = SCRIPTS / (script if script.endswith(".cjs") else f"{script}.py")
    program, packages = python, CLIENTS_PYTHON.parents[1] / "node" / "node_modules"
    if path.suffix == ".cjs":
        program = next(CLIENTS_PYTHON.parents[1].glob(CLIENTS_NODE), packages)
    if not program.is_file():
        pytest.fail(f"{program} is missing: run `make install`")
    variables = {f"TEST_{name}": value for name, value in reached.items()}
    # LiteLLM's prices, which it would fetch.
    variables["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    variables["NODE_PATH"] = str(packages)
    done = subprocess.run(
        [str(program), str(path)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def refusal_in(result: Any) -> tuple[Any, Any, Any]:
    """Return the kind of an error that a library has raised, its status and its body."""
    return result["raised"], result["status"], result["body"]
