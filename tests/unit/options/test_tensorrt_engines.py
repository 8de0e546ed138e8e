"""What needs the TensorRT backend is refused where the release has none, and only there."""

from pathlib import Path
from typing import Final

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import resolve_options
from lmi_backend.options.engine_spec import SPECS
from lmi_backend.options.kinds import BOOL
from lmi_backend.options.option import rows_in
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.table import trtllm
from lmi_backend.options.tensorrt_engines import ARGUMENTS, LAST
from lmi_backend.options.versions import Planned

JUDGE = SPECS["trtllm"].implementation.judge
HAVING: Final = ["1.0.0", "1.1.0", "1.2.1", "1.3.0rc0", "1.3.0rc5.post2", LAST]
GONE: Final = ["1.3.0rc21", "1.3.0rc22.post1", "1.3.0", "1.4.0rc1", "1.4", "2.0.0"]
TORCH: Final = frozenset({"model", "max_num_tokens"})
VALUES: Final = {
    "option.quantize": "awq", "option.q_format": "int4_awq", "option.clamp_val": "0,1",
    "option.exclude_modules": "a", "option.extended_runtime_perf_knob_config": "{}",
}  # fmt: skip


def judge(folder: Path, properties: str, version: str, *, model: str = "", **more: object) -> str:
    """Return what is said, or the error."""
    lines = parse_properties(f"option.rolling_batch=trtllm\n{properties}")
    options = resolve_options(lines, {}, folder=folder)
    release = Planned(version, **({"is_installed": True} | more))  # type: ignore[arg-type]
    assert JUDGE is not None
    try:
        return "; ".join(JUDGE(options, model, release))
    except ConfigurationError as error:
        return str(error)


def folder_with(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch()
    return str(folder)


@pytest.mark.parametrize("version", HAVING)
def test_a_release_that_has_the_backend_is_asked_for_it(tmp_path: Path, version: str) -> None:
    model = folder_with(tmp_path, "rank0.engine", "rank1.engine")
    properties = "option.backend=tensorrt\noption.quantize=awq\noption.fast_build=true"
    assert judge(tmp_path, properties, version, model=model) == ""
    assert judge(tmp_path, "", version, model=model) == ""


@pytest.mark.parametrize("version", GONE)
@pytest.mark.parametrize("value", ["tensorrt", "TensorRT", " tensorrt "])
def test_the_backend_is_refused_with_advice(tmp_path: Path, version: str, value: str) -> None:
    verdict = judge(tmp_path, f"option.backend={value}", version)
    assert "option.backend" in verdict
    assert (
        f"TensorRT-LLM {version} has no TensorRT backend any more (the last was {LAST})" in verdict
    )
    assert "serve the checkpoint that it was built from (option.model_id" in verdict


@pytest.mark.parametrize("version", GONE)
@pytest.mark.parametrize("properties", ["", "option.backend=pytorch"])
def test_a_folder_of_built_engines_is_refused(
    tmp_path: Path, version: str, properties: str
) -> None:
    model = folder_with(tmp_path, "config.json", "rank10.engine")
    verdict = judge(tmp_path, properties, version, model=model)
    assert verdict.startswith(
        f"{model}: rank10.engine is a built engine, and TensorRT-LLM {version}"
    )
    assert "serve the checkpoint" in verdict


def test_weights_beside_a_built_engine_can_be_served(tmp_path: Path) -> None:
    model = folder_with(tmp_path, "config.json", "rank0.engine", "model.safetensors")
    assert "option.backend=pytorch serves" in judge(tmp_path, "", "1.4.0rc1", model=model)
    assert judge(tmp_path, "option.backend=pytorch", "1.4.0rc1", model=model) == ""


@pytest.mark.parametrize("model", ["", "org/model", "s3://bucket/model", "/no/such", "a\0b"])
def test_a_place_that_cannot_be_looked_into_says_nothing(tmp_path: Path, model: str) -> None:
    assert judge(tmp_path, "", "1.4.0rc1", model=model) == ""


BUILDING: Final = sorted(
    row.name
    for row in rows_in(trtllm)
    for path in [
        row.engine_args.get("trtllm", ""),
        row.plan_field.removeprefix("engine_arguments "),
    ]
    if path.split(".")[0] in ARGUMENTS
)


@pytest.mark.parametrize("name", [*BUILDING, *(f"option.{each}" for each in sorted(ARGUMENTS))])
def test_every_option_that_only_builds_engines_is_refused(tmp_path: Path, name: str) -> None:
    """All rows whose argument only that backend's LLM takes, and all those arguments."""
    value = VALUES.get(name) or ("true" if _is_truth(name) else "1")
    verdict = judge(tmp_path, f"{name}={value}", "1.3.0")
    assert name in verdict
    assert "is read only by the TensorRT backend, and TensorRT-LLM 1.3.0 has no" in verdict
    assert "a checkpoint that is quantised already" in verdict
    assert "set option.backend" not in verdict
    asked = f"option.backend=tensorrt\n{name}={value}"
    assert judge(tmp_path, asked, "1.2.1") == ""


def _is_truth(name: str) -> bool:
    return any(row.name == name and row.kind is BOOL for row in rows_in(trtllm))


def test_an_argument_that_a_later_release_has_for_itself_is_its_own(tmp_path: Path) -> None:
    arguments = TORCH | {"batching_type"}
    verdict = judge(tmp_path, "option.batching_type=STATIC", "1.5.0", arguments=arguments)
    assert verdict == ""


@pytest.mark.parametrize("version", ["", "1.3.0.dev2026071500", "unknown"])
def test_the_source_tells_where_the_version_does_not(tmp_path: Path, version: str) -> None:
    backend = "option.backend=tensorrt"
    assert "no TensorRT backend" in judge(tmp_path, backend, version, arguments=TORCH)
    assert judge(tmp_path, backend, version, arguments=TORCH | {"build_config"}) == ""
    # Nothing is known: its load will tell.
    assert judge(tmp_path, backend, version) == ""


def test_the_release_that_is_assumed_is_said(tmp_path: Path) -> None:
    model = folder_with(tmp_path, "rank0.engine")
    for properties, place in (("option.backend=tensorrt", ""), ("", model)):
        verdict = judge(tmp_path, properties, "1.2.1", model=place, is_installed=False)
        assert "is not installed for the workers: planned for 1.2.1, the release that is" in verdict
        assert LAST in verdict
    assert judge(tmp_path, "", "1.2.1", is_installed=False) == ""
