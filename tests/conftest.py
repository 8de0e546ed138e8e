"""What all tests share: their order, one server with the real vLLM, what the tiny model knows."""

import json
import os
import random
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreter.compiling import NO_COMPILER
from tests.support.run.left_behind import LeftBehind
from tests.support.run.left_out import LeftOut
from tests.support.run.places import ENGINE_PYTHON, LORA, TESTS, TINY, TINY_DATA
from tests.support.run.sharing import UNITS, Sharing
from tests.support.run.shell import forget_shell
from tests.support.run.spending import Spending
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties

# Here, not in a fixture: modules read it too, and fixtures that many tests share.
forget_shell()
os.environ |= {
    # Python sets one for itself where it has none: a child would have another environment.
    "LC_ALL": "C.UTF-8",
    # gRPC's code in a forked child crashes it where threads of a client still run.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # vLLM compiles when it first tells log probabilities: 15 s of CPU in each engine. One on
    # Triton and those on GPUs do so, as users' do (tests/support/interpreter/compiling.py).
    NO_COMPILER: "1",
    # Engines run side by side here: threads that wait busily would take the cores of others.
    "OMP_WAIT_POLICY": "PASSIVE",
    # NumPy starts a thread for each core in each process, none of which ever has work: half of
    # what its import takes, in the hundreds of processes that the tests start.
    "OPENBLAS_NUM_THREADS": "1",
}
# From what is known in seconds to what takes minutes.
ORDER = (
    UNITS, "contract", "integration", "clients", "security", "fleet", "chaos", "soak", "gpu",
)  # fmt: skip
LONGEST = (
    "tests served", "tests/clients served", "tests ensemble_server", "tests/clients/test_pages.py",
    "tests/integration/test_nodes.py",
)  # fmt: skip
"""Groups that begin first where tests run side by side: at the end the others would wait for
them."""
WAITING = ("chaos", "soak", "fleet", "security")
"""Folders whose tests mostly wait, for a worker to come back or a time to pass; those of half a
minute first."""
SEED = "LMI_BACKEND_TEST_SEED_OF_ORDER"
"""Variable: a number by which the tests are shuffled, to find those that need the ones earlier."""
_GROUP = re.compile(r"@(unit/|tests[/ ])[^@]*$")
# Fixtures of many tests that start nothing heavy; every process of pytest has its own.
_LIGHT = (
    "chat_properties", "doubles", "fleet_report", "is_long", "long_questions", "questions",
    "report", "results_of", "start", "tiny_properties", "triton_results_of",
)  # fmt: skip
CLIENTS = ("trtllm", "trtllm_infer", "infer", "raw", "preprocessing", "postprocessing")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Count what the run spends, look for what it leaves; let `--last-failed` find names.

    The name of what failed side by side ended with its group.
    """
    # `nohup make test` has it ignored, and each server would inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.pluginmanager.register(Spending())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LeftBehind(config))
        config.pluginmanager.register(LeftOut())
    plugin = config.pluginmanager.get_plugin("lfplugin")
    if plugin is not None and config.getoption("lf"):
        failed = {type(each).parse(_GROUP.sub("", str(each))) for each in plugin.lastfailed}
        plugin.lastfailed = dict.fromkeys(failed, True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    """Share out the tests where several processes run them."""
    return Sharing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one process of several read the tests first: it compiles them for all."""
    is_first = False
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = Path(session.config.option.basetemp).parent
        try:
            (shared / "reads").touch(exist_ok=False)
            is_first = True
        except FileExistsError:
            wait_for((shared / "has read").exists)
    try:
        return (yield)
    finally:
        if is_first:
            (shared / "has read").touch()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the folders in this order, and in each what shares an engine one after the other.

    `make test` runs several processes of pytest: tests of a group stay in one of them, so that
    what they share is started once.
    """
    groups = {item: _group(item) for item in items}
    places: dict[tuple[str, str], int] = {}
    for place, item in enumerate(items):
        places.setdefault((_folder(item), groups[item] or item.nodeid), place)

    is_parallel = "PYTEST_XDIST_WORKER" in os.environ

    def key(item: pytest.Item) -> tuple[bool, int, int]:
        folder, group = _folder(item), groups[item]
        is_long = is_parallel and (group or item.name) in LONGEST
        return not is_long, ORDER.index(folder), places[folder, group or item.nodeid]

    items.sort(key=key)
    if is_parallel:
        first = [item for item in items if not key(item)[0]]
        items[:] = first + _mixed(items[len(first) :])
    if seed := os.environ.get(SEED):
        items[:] = _shuffled(groups, random.Random(seed))
    for item, group in groups.items():
        if group and is_parallel:
            # How pytest-xdist 3.8 learns of a group. Its own mark writes into an attribute that
            # pytest 9.2 no longer reads.
            item._id = type(item.id).parse(f"{item.nodeid}@{group}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of its servers' logs with a test that fails."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Served):
                report.sections.append((f"end of the log of {name}", value.log_end()))
    return report


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return tests with those that wait spread among those that start engines, units last.

    Each kind is in its own order.
    """
    units = [item for item in items if _folder(item) == UNITS]
    waiting = [item for item in items if _folder(item) in WAITING]
    waiting.sort(key=lambda item: WAITING.index(_folder(item)))
    computing = [item for item in items if _folder(item) not in (UNITS, *WAITING)]
    places: dict[pytest.Item, float] = {}
    for kind in (computing, waiting):
        places |= {item: place / len(kind) for place, item in enumerate(kind)}
    return [*sorted(places, key=places.__getitem__), *units]


def _shuffled(groups: dict[pytest.Item, str], chance: random.Random) -> list[pytest.Item]:
    """Return the groups of tests in any order, and tests of units in any order in theirs."""
    names = {group or item.nodeid: chance.random() for item, group in groups.items()}
    inside = {item: chance.random() * (_folder(item) == UNITS) for item in groups}
    return sorted(groups, key=lambda item: (names[groups[item] or item.nodeid], inside[item]))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def _group(item: pytest.Item) -> str:
    """Name what a test shares with others; empty if it stands alone."""
    if _folder(item) == UNITS:
        return str(item.path.relative_to(TESTS))
    shared = {
        name: found[-1]
        for name, found in item._fixtureinfo.name2fixturedefs.items()  # type: ignore[attr-defined]
        if name not in _LIGHT and found[-1].scope in ("session", "module") and found[-1].baseid
    }
    if not shared:
        return ""
    # A session's server before what only this module has, and before what is made of it.
    widest = min(
        shared.values(),
        key=lambda each: (
            each.scope != "session",
            each.baseid.endswith(".py"),
            len(shared.keys() & set(each.argnames)),
        ),
    )
    if widest.baseid.endswith(".py"):
        return str(widest.baseid)
    param = item.callspec.params.get(widest.argname, "") if hasattr(item, "callspec") else ""
    return f"{widest.baseid} {widest.argname} {param}".strip()


def _known(name: str) -> list[dict[str, str]]:
    known: list[dict[str, str]] = json.loads((TINY_DATA / name).read_text(encoding="utf-8"))
    return known


@pytest.fixture(scope="session")
def questions() -> dict[str, str]:
    """Prompt to greedy answer, as proved when the tiny model was trained."""
    return {item["prompt"]: item["answer"] for item in _known("questions.json")}


@pytest.fixture(scope="session")
def long_questions() -> dict[str, str]:
    """The same, for answers of 33 to 218 tokens."""
    return {item["prompt"]: item["answer"] for item in _known("long_questions.json")}


@pytest.fixture(scope="session")
def tiny_properties() -> dict[str, Any]:
    """Options that serve the tiny model quickly on a CPU."""
    return {
        "option.rolling_batch": "vllm",
        "option.model_id": TINY / "llama",
        "option.pythonExecutable": ENGINE_PYTHON,
        "option.dtype": "fp32",
        "option.max_model_len": 1024,
        "option.max_rolling_batch_size": 64,
        "option.enforce_eager": "true",
        "option.env": "VLLM_CPU_KVCACHE_SPACE=1",
        # A quarter of that GiB, which each core would fill with zeros: 64 requests of 1,024 tokens,
        # and what is kept of earlier ones.
        "option.num_gpu_blocks_override": 704,
        "option.enable_lora": "true",
        "option.max_lora_rank": 8,
        # A second start of vLLM beside each test's.
        "option.spare_workers": 0,
    }


@pytest.fixture(scope="session")
def chat_properties(tiny_properties: dict[str, Any]) -> dict[str, Any]:
    """Options for chats with tools and structured outputs, too."""
    return tiny_properties | {
        # The chaos suite lets the engine stand still, and waits for this. vLLM compiles at its
        # first log probabilities, an older one for longer.
        "option.hang_timeout": os.environ.get("LMI_BACKEND_TEST_HANG_TIMEOUT", "25"),
        "option.enable_auto_tool_choice": "true",
        "option.tool_call_parser": "hermes",
        # The model is so small that it writes white space without end where a grammar lets it.
        "option.structured_outputs_config": json.dumps(
            {"backend": "xgrammar", "disable_any_whitespace": True}
        ),
    }


@pytest.fixture(scope="session")
def served(
    tmp_path_factory: pytest.TempPathFactory, chat_properties: dict[str, Any]
) -> Iterator[Served]:
    """`tiny` on vLLM with its LoRA adapter, and `echo`, each for all clients."""
    folder = tmp_path_factory.mktemp("models")
    more: dict[str, Any] = {"option.log_requests": "true", "option.adapter_roots": TINY}
    tiny = write_properties(folder / "tiny", chat_properties | more)
    (tiny / "adapters").mkdir()
    (tiny / "adapters" / "wrong").symlink_to(LORA)
    echo = write_properties(
        folder / "echo", {"option.rolling_batch": "echo", "option.token_seconds": 0.01}
    )
    options = ("--clients", ",".join(CLIENTS), "--control-key", str(folder / "control.key"))
    with serve([tiny, echo], folder, *options) as server:
        yield server


@pytest.fixture(scope="session")
def ensemble_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`echo`, and its alias models under the names that TensorRT-LLM's clients have built in."""
    folder = tmp_path_factory.mktemp("ensemble")
    properties = {"option.rolling_batch": "echo", "option.token_seconds": 0.01}
    properties |= {"option.openai": "true"}
    echo = write_properties(folder / "echo", properties)
    names = "trtllm=ensemble,trtllm=tensorrt_llm,trtllm_infer=ensemble_infer,trtllm_infer,infer"
    with serve([echo], folder, "--clients", names) as server:
        yield server
