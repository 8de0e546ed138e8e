"""What is read of a package that has the layout of vLLM's source."""

from pathlib import Path

import pytest

from lmi_backend.options.signature import NO_FLAG, Signature, read_package
from tests.support.vllm_tree import write_tree


def read(folder: Path, **changes: tuple[str, str]) -> Signature:
    found = read_package("vllm", write_tree(folder, **changes))
    assert found
    return found


def test_the_types_of_arguments_are_those_of_their_flags(tmp_path: Path) -> None:
    found = read(tmp_path)
    types = {name: each.type for name, each in found.arguments.items()}
    assert found.version == "0.33.0"
    assert types["policy"] == "Literal['fcfs', 'priority'] | None"
    assert types["kv_cache_dtype"] == "Literal['auto', 'fp8'] | str"
    assert types["quantization"] == "Literal['awq', 'fp8'] | str | None"
    assert types["spec_method"] == "Literal['ngram', 'draft_model', 'eagle', 'eagle3'] | None"
    assert types["device_name"] == "Literal['auto', 'cpu']"
    assert [name for name, each in found.arguments.items() if each.flag == NO_FLAG] == [
        "hidden",
        "enable_log_requests",
    ]


def test_objects_have_the_keys_of_their_classes(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert set(found.objects) == {"pool_config", "speculative_config", "reasoning_config"}
    # A validator folds a word before it is judged.
    assert {key: each.type for key, each in found.objects["pool_config"].items()} == {
        "kind": "Literal['mean', 'last']",
        "backend": "Any",
        "dimensions": "int | None",
    }
    method = found.objects["speculative_config"]["method"].type
    assert method == "Literal['ngram', 'draft_model', 'eagle', 'eagle3'] | None"


def test_words_are_those_that_are_registered(tmp_path: Path) -> None:
    assert dict(read(tmp_path).words) == {
        "quantization": ("awq", "fp8"),
        "kv_cache_dtype": ("auto", "fp8"),
        "tool_call_parser": ("hermes", "llama3_json", "llama4_json", "kimi_k2"),
        "reasoning_parser": ("qwen3",),
    }


def test_the_server_has_arguments_beside_its_listener(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert {"reasoning_effort_map", "response_role", "tool_call_parser"} <= set(found.server)
    assert found.listener == ("host", "middleware", "port")


def test_of_a_server_that_does_not_keep_its_listener_apart_the_record_knows_it(
    tmp_path: Path,
) -> None:
    joined = ("    host: str", "    response_role: str = 'x'\n    host: str")
    apart = ("(BaseFrontendArgs)", "(Foreign)")
    package = write_tree(tmp_path)
    path = next(package.glob("entrypoints/**/cli_args.py"))
    text = path.read_text("utf-8").replace(*joined).replace(*apart)
    path.write_text(text, "utf-8")
    found = read_package("vllm", package)
    assert found
    assert (set(found.server), found.listener) == (
        {"response_role"},
        ("host", "middleware", "port"),
    )


@pytest.mark.parametrize("place", ["entrypoints/openai/cli_args.py", "entrypoints/arguments.py"])
def test_a_server_that_has_moved_is_found(tmp_path: Path, place: str) -> None:
    package = write_tree(tmp_path)
    moved = package / place
    moved.parent.mkdir(exist_ok=True)
    (package / "entrypoints" / "common" / "cli_args.py").rename(moved)
    found = read_package("vllm", package)
    assert found
    assert "reasoning_effort_map" in found.server
    assert "hermes" in found.words["tool_call_parser"]


def test_switches_have_opposites_where_the_parser_pairs_them(tmp_path: Path) -> None:
    pairs = dict(read(tmp_path / "0.33").opposites)
    # `--disable-log-stats` is a flag without an opposite.
    assert pairs == {
        "disable_prefix_caching": "enable_prefix_caching",
        "disable_auto_tool_choice": "enable_auto_tool_choice",
        "disable_log_deltas": "enable_log_deltas",
    }
    before = ('{"--enable-": "--disable-", "--disable-": "--enable-"}', "None")
    assert dict(read(tmp_path / "0.32", argparse_utils=before).opposites) == {}


def test_models_that_the_release_has_no_longer_are_known(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert dict(found.ended_models) == {"QWenLMHeadModel": "0.23.0"}
    # Only the load can tell whether other code serves it.
    assert dict(found.replaced_models) == {"OddForCausalLM": "0.32.0"}


@pytest.mark.parametrize(
    "change",
    [
        {"cache": ("CacheDType = ", "CacheDType: (")},
        {"pool": ("class PoolConfig", "class PoolConfig(PoolConfig)")},
        {"registry": ("{", "dict({")},
        {"cli_args": ("@config", "@")},
        {"arg_utils": ("**drafts", "**unknown")},
        {"argparse_utils": ("FlexibleArgumentParser", "Parser")},
        {"hermes": ("register_module", "add")},
    ],
)
def test_a_part_that_cannot_be_read_costs_that_part(
    tmp_path: Path, change: dict[str, tuple[str, str]]
) -> None:
    found = read(tmp_path, **change)
    assert "max_logprobs" in found.arguments
    assert "quantization" in found.words
