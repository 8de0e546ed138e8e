from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.planned import planned_release, release_and_why, signature_of
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import plan_model
from lmi_backend.plan.hardware import Hardware

GPU = Hardware(devices=("0",), device_memory=80 << 30, host_memory=200 << 30)


def options(release: str, *lines: str) -> LmiOptions:
    text = "\n".join(["option.rolling_batch=vllm", "option.model_id=org/m", *lines])
    found = resolve_options(parse_properties(text), {}, folder=Path("/none"))
    return replace(found, supposed_release=release)


def test_the_release_is_the_supposed_one_or_the_record_s(tmp_path: Path) -> None:
    python = str(tmp_path / "none")
    supposed, recorded = options("0.26.0"), options("")
    assert planned_release(supposed, python).version == "0.26.0"
    assert release_and_why(supposed, python) == "vLLM 0.26.0, as --engine-version says"
    reason = f"the recorded release: {python} has none (--engine-version supposes another)"
    assert release_and_why(recorded, python) == f"vLLM 0.32.0, {reason}"
    past, now = signature_of(supposed, python), signature_of(recorded, python)
    assert past
    assert now
    assert past.version == "0.26.0"
    assert set(now.arguments) - set(past.arguments)
    newer = signature_of(options("0.99.0"), python)
    assert newer
    assert set(newer.arguments) == set(now.arguments)


def test_a_plan_for_a_supposed_release_says_so_and_judges_by_it() -> None:
    plan = plan_model(options("0.26.0"), {}, hardware=GPU)
    assert "planned for vLLM 0.26.0, as --engine-version says" in plan.notes
    line = "option.kda_decode_backend=auto"
    assert plan_model(options("", line), {}, hardware=GPU).config.passthrough
    with pytest.raises(OptionError, match=r"is no argument of vllm 0\.26\.0; 0\.32\.0 has it"):
        plan_model(options("0.26.0", line), {}, hardware=GPU)
    with pytest.raises(PlanError, match=r"--engine-version 0\.9\.1: vLLM .* is too old"):
        plan_model(options("0.9.1"), {}, hardware=GPU)
