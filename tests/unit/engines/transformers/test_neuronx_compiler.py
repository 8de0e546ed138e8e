"""What of the NeuronX adapter needs no library."""

import pytest

from lmi_backend.engines.transformers.neuronx_compiler import compiler_environment


@pytest.mark.parametrize(
    ("asked", "before", "flags"),
    [
        ({}, {}, ""),
        ({"compiler": {"optlevel": 3}}, {}, "-O3"),
        (
            {"compiler": {"optlevel": 1, "saturate_infinity": True}},
            {"NEURON_CC_FLAGS": "--model-type transformer"},
            "--model-type transformer -O1 --enable-saturate-infinity",
        ),
        (
            {"compiler": {"mixed_precision_accumulation": True}},
            {},
            "--enable-mixed-precision-accumulation",
        ),
    ],
)
def test_the_compiler_is_told_by_variables(
    asked: dict[str, object], before: dict[str, str], flags: str
) -> None:
    compiler_environment(asked, before)
    assert before["NEURON_CC_FLAGS"] == flags


def test_the_cache_of_compiled_graphs_is_where_it_was_asked() -> None:
    environment: dict[str, str] = {}
    compiler_environment({"compile_cache_url": "s3://bucket/cache"}, environment)
    assert environment["NEURON_COMPILE_CACHE_URL"] == "s3://bucket/cache"
