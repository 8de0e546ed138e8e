"""The files that a model is loaded from, as they are now."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmi_backend.fetch.hub import folder_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.engine_config import EngineConfig
    from lmi_backend.ipc.survivor import Files


def files_of(config: EngineConfig, environment: Mapping[str, str]) -> Files:
    settings: dict[str, Any] = {**config.front_end, **config.passthrough, **config.arguments}
    revision = str(settings.get("revision") or "")
    of_tokenizer = str(settings.get("tokenizer_revision") or revision)
    paths: list[Path] = []
    for name, its_revision in (
        (config.model, revision),
        (str(settings.get("tokenizer") or ""), of_tokenizer),
    ):
        if folder := folder_of(name, its_revision, environment):
            with contextlib.suppress(OSError):
                paths += sorted(folder.iterdir())
    paths.append(Path(str(settings.get("chat_template") or "")))
    files: list[tuple[str, int, int]] = []
    for each in paths:
        # A template may be no file.
        with contextlib.suppress(OSError, ValueError):
            if each.is_file():
                stat = each.stat()
                files.append((str(each), stat.st_mtime_ns, stat.st_size))
    return tuple(files)
