"""A vLLM whose inside has changed everywhere answers as it did before, by its public ways."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.table import PATHS
from tests.support.mutated_engine import Outcome, serve
from tests.support.mutated_vllm import Tree, package_of, write
from tests.support.places import ENGINE_PYTHON
from tests.support.releases import IS_COMPAT

ENVIRONMENT = ENGINE_PYTHON.parent.parent
# What each fast path holds on to, renamed wherever vLLM uses it.
RENAMED = (
    "make_request_output", "process_outputs", "AdapterLogitsProcessor", "OMPProcessManager",
    "get_num_unfinished_requests", "load_from_url_async", "sanitize_message",
    "get_diff_sampling_param", "PunicaWrapperCPU", "chat_completion_full_generator",
    "to_chat_completion_request", "convert_ids_list_to_tokens",
    "render_chat_async", "render_chat", "render_cmpl", "_bookkeeping_sync", "parse_delta",
    "aux_buffers",
)  # fmt: skip
CHATS = "entrypoints/openai/chat_completion/api_router.py"
CORE = "v1/engine/core.py"
RUNS = r"(def run_engine_core\(.*\):\n)"
DIES = """
        import os, sys
        if any("plugin/waits" in each for each in sys.path):
            os._exit(9)
"""
CHECKED = "Depends(validate_json_request)]"


def change_all(tree: Tree) -> None:
    """Rename what every fast path needs; a dependency stands before the chats."""
    for word in RENAMED:
        assert tree.replace(rf"\b{word}\b", f"renamed_{word}")
    assert tree.replace(r"\bstat_loggers\b", "all_loggers", ["v1/metrics/loggers.py"])
    assert tree.replace(r"(?<!os\.)\bsched_yield\b", "yield_to_others")
    assert tree.replace(r"\bmodels\.model_name\(", "models.name_of(")
    assert tree.replace(r"\bdef model_name\(", "def name_of(")
    servers = [path for path in tree if path.startswith("entrypoints/")]
    assert tree.replace(r"\blora_requests\b", "adapters", servers)
    text = tree[CHATS].replace(CHECKED, f"{CHECKED[:-1]}, refusing()]", 1)
    tree[CHATS] = text.replace(
        "\nrouter =", "\nfrom vllm.mutation_helpers import refusing\nrouter =", 1
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def untouched(tiny_properties: dict[str, Any], folder: Path) -> Outcome:
    return serve(tiny_properties, ENGINE_PYTHON, folder / "untouched")


def test_the_untouched_one_has_all_fast_paths(untouched: Outcome) -> None:
    assert (untouched.refused, untouched.off) == ("", {})


def test_every_public_way_answers_the_same(
    untouched: Outcome, tiny_properties: dict[str, Any], folder: Path
) -> None:
    tree = Tree(package_of(ENVIRONMENT))
    change_all(tree)
    changed = serve(tiny_properties, write(tree, ENVIRONMENT, folder / "all"), folder / "work")
    assert changed.refused == ""
    assert set(changed.off) == {fast_path.name for fast_path in PATHS}
    assert not changed.is_silent
    differences = changed.differences(untouched)
    # The dependency refuses a header, as it is there to do; no answer is resumed, nor has a seed.
    assert set(differences) == {"marked", "resumed", "two answers"}, differences
    assert changed.answers["marked"][0] == 418
    assert "cannot be resumed" in changed.answers["resumed"]
    assert "seed may end the engine of all" in str(changed.answers["two answers"])


# Further engines, of `make compat` alone.
if IS_COMPAT:

    def test_what_cannot_be_replaced_is_refused_by_its_name(
        tiny_properties: dict[str, Any], folder: Path
    ) -> None:
        tree = Tree(package_of(ENVIRONMENT))
        assert tree.replace(r"\binit_app_state\b", "fill_state")
        changed = serve(tiny_properties, write(tree, ENVIRONMENT, folder / "need"), folder / "work")
        assert "lacks init_app_state" in changed.refused
        assert "releases that were run" in changed.refused

    def test_a_core_that_dies_of_what_is_held_in_it_is_started_without(
        untouched: Outcome, tiny_properties: dict[str, Any], folder: Path
    ) -> None:
        tree = Tree(package_of(ENVIRONMENT))
        assert tree.replace(RUNS, rf"\1{DIES}", [CORE])
        assert tree.replace(r"\b0\.\d+\.\d+\b", "99.0.0", ["_version.py"])
        newer = write(tree, ENVIRONMENT, folder / "newer")
        changed = serve(tiny_properties, newer, folder / "work")
        assert changed.refused == ""
        core = {"forced_tokens", "waits", "lora_rows", "seeded_steps", "single_process"}
        assert set(changed.off) == core
        assert not changed.is_silent
        assert set(changed.differences(untouched)) <= {"resumed", "two answers"}
