"""Engines that TensorRT-LLM builds ahead: 1.3.0rc20 is the last with that backend.

Source: NVIDIA's migration guide "TensorRT Backend Removed" (docs/source/legacy), and the module
pages of the candidates: those of 1.3.0rc20 have the builder and its models, those of 1.3.0rc22
have neither.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options.option import PREFIX
from lmi_backend.options.versions import is_later

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.options.resolve import LmiOptions
    from lmi_backend.options.setting import WrittenSetting
    from lmi_backend.options.versions import Planned

BACKEND: Final = "tensorrt"
"""The value of option.backend."""
LAST: Final = "1.3.0rc20"
ARGUMENTS: Final = frozenset(
    {
        "batching_type", "build_config", "calib_config", "embedding_parallel_mode",
        "enable_build_cache", "enable_prompt_adapter", "enable_tqdm",
        "extended_runtime_perf_knob_config", "fast_build", "max_prompt_adapter_token",
        "normalize_log_probs", "quant_config", "workspace",
    }
)  # fmt: skip
"""What its LLM alone takes (TrtLlmArgs of 1.2.1, without those of TorchLlmArgs)."""

_ENGINE_FILES: Final = "rank*.engine"
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_TITLE: Final = "TensorRT-LLM"
_CHECKPOINT: Final = "the checkpoint that it was built from (option.model_id: a folder or a hub id)"


def judge(options: LmiOptions, model: str, release: Planned, building: frozenset[str]) -> list[str]:
    """Refuse what needs the TensorRT backend where the release has none.

    Args:
        model: the folder, or another place, whose content is not known.
        building: options that are read only while an engine is built.

    Returns:
        What is assumed of a release that is not installed.

    Raises:
        ConfigurationError: an option or the folder needs what is not there.
    """
    asked = options.passthrough.get("backend")
    is_wanted = asked is not None and is_tensorrt(asked.value)
    if _has_backend(release):
        if not is_wanted:
            _refuse_building(options, building)
        needs = is_wanted or bool(engine_file(model))
        return [_assumed(release)] if needs and not release.is_installed else []
    gone = f"{_TITLE} {release.version or 'of that interpreter'} has no TensorRT backend any more"
    gone += f" (the last was {LAST})"
    if asked is not None and is_wanted:
        raise _error(asked, f"is refused: {gone}; leave it out and serve {_CHECKPOINT}")
    _refuse_folder(model, gone, serves_checkpoint=asked is not None)
    for setting in _builders(options, release, building):
        problem = (
            f"is read only by the TensorRT backend, and {gone}; leave it out and use a checkpoint "
            "that is quantised already"
        )
        raise _error(setting, problem)
    return []


def is_tensorrt(backend: str) -> bool:
    """Tell whether a value of option.backend means the TensorRT backend."""
    return backend.strip().lower() == BACKEND


def engine_file(model: str) -> str:
    """Return the name of a built engine in a folder; empty if there is none."""
    return min((name for name in _files(model) if fnmatch(name, _ENGINE_FILES)), default="")


def _files(model: str) -> list[str]:
    try:
        return os.listdir(model) if model else []
    except (OSError, ValueError):
        # A hub's model, or no name of a folder.
        return []


def _has_backend(release: Planned) -> bool:
    gone = is_later(release.version, LAST)
    if gone is None and release.arguments:
        # A build between two releases: its source tells.
        return bool(release.arguments & {"build_config", "fast_build"})
    return not gone


def _assumed(release: Planned) -> str:
    return (
        f"{_TITLE} is not installed for the workers: planned for {release.version}, the release "
        f"that is assumed; {LAST} is the last that has the TensorRT backend, which is needed here"
    )


def _refuse_building(options: LmiOptions, building: frozenset[str]) -> None:
    """Refuse what is only read while an engine is built: PyTorch's LLM takes no such argument."""
    for name, setting in options.settings.items():
        if name in building:
            problem = (
                "is read only while a TensorRT engine is built; set option.backend=tensorrt, or "
                "leave it out and use a checkpoint that is quantised already"
            )
            raise _error(setting, problem)


def _refuse_folder(model: str, gone: str, *, serves_checkpoint: bool) -> None:
    """Refuse a folder of built engines.

    Args:
        serves_checkpoint: whether another backend is set, which reads weights next to them.
    """
    file = engine_file(model)
    has_weights = any(fnmatch(name, weights) for name in _files(model) for weights in _WEIGHTS)
    if file and not (serves_checkpoint and has_weights):
        beside = "; option.backend=pytorch serves the weights next to it" if has_weights else ""
        raise PlanError(
            f"{model}: {file} is a built engine, and {gone}; serve {_CHECKPOINT}{beside}"
        )


def _builders(
    options: LmiOptions, release: Planned, building: frozenset[str]
) -> Iterator[WrittenSetting]:
    # Unless the release has an argument of that name for another purpose.
    gone = ARGUMENTS - release.arguments
    for name, setting in (*options.settings.items(), *options.passthrough.items()):
        if name in building or name.removeprefix(PREFIX) in gone:
            yield setting


def _error(setting: WrittenSetting, problem: str) -> OptionError:
    return setting.error(problem)
