"""What vLLM's server has and this one has not is told: its paths, and the flags that need them."""

import json
import re

from lmi_backend.clients.registry import path_at
from lmi_backend.clients.unserved import UNSERVED_PATHS
from lmi_backend.options.table import VARIABLES
from lmi_backend.options.table.variables import SERVER_FLAGS
from tests.support.run.places import TESTS

RECORD = json.loads((TESTS / "data" / "vllm_routes.json").read_text("utf-8"))
SERVED = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "/v1/load_lora_adapter",
    "enable_scale_out": "/inference/v1/generate",
    "enable_tokenizer_info_endpoint": "/tokenizer_info",
    "tokens_only": "/inference/v1/generate",
}
"""Flags and variables of vLLM that add paths which are served here."""


def test_each_path_of_vllms_server_is_served_or_its_absence_is_told() -> None:
    served = {path for path in RECORD["routes"] if path_at(path) is not None}
    assert served.isdisjoint(UNSERVED_PATHS)
    assert served | UNSERVED_PATHS.keys() == set(RECORD["routes"])


def test_a_flag_that_adds_paths_adds_one_that_is_served_or_is_told() -> None:
    for flag in RECORD["route_flags"]:
        found = SERVER_FLAGS.get(flag) or VARIABLES.get(flag)
        assert (found is not None) != (flag in SERVED), flag
    assert all(path_at(path) is not None for path in SERVED.values())


def test_a_flag_without_effect_names_paths_that_are_not_served() -> None:
    doorless = {
        name: re.findall(r"/\S+\w", each.detail)
        for name, each in {**SERVER_FLAGS, **VARIABLES}.items()
        if each.detail.startswith("no effect")
    }
    assert doorless["enable_sleep_mode"] == ["/sleep", "/wake_up"]
    assert {path for paths in doorless.values() for path in paths} <= UNSERVED_PATHS.keys()
