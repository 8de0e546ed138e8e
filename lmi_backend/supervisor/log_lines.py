"""One format for the lines of all programs that `serve` starts, and those that a screen shows."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import datetime, timezone
from typing import Final, NamedTuple

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

_HEAD: Final = re.compile(
    # I1126 12:01:50.430551 25647 model_lifecycle.cc:472] "loading: echo:1"
    r"(?P<letter>[IWEF])\d{4} [\d:.]{15} +\d+ (?P<file>[\w.-]+):\d+\] ?"
    # 2026-11-26 12:01:50,722 INFO GET /ping status=503
    r"|[\d-]{10} [\d:]{8},\d{3} (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"|lmi-backend: "
)
"""The beginning of a line of Triton, of the front end and of `lmi-backend`."""
_LEVELS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_STUB: Final = "logs.py"
"""Whose helper hands the stub's lines to Triton (`triton/logs.py`)."""
_NAME: Final = re.compile(r"\[?(?:worker |request model=)?([\w.-]+)[/: ]")
"""Of a model, in a line of its stub or its engine."""
_SERVED_MODEL: Final = re.compile(r" model=([\w.-]+)")
_ALWAYS: Final = re.compile(r"request model=|worker \S+ is (not )?adopted")
"""Lines of a model that a screen shows at every level."""
_NEVER: Final = re.compile(
    # On each machine without a GPU, at the levels of warnings and errors.
    r"Unable to allocate pinned system memory|CudaDriverHelper has not been initialized"
    r"|DCGM unable to start|Failed to initialize NVML"
    # Three times of a model that cannot be loaded; `serve` says it once.
    r"|ERROR: Failed to create instance|failed to load '|Invalid argument: load failed for model"
)
"""Lines of Triton that a screen never shows."""

TRITON: Final = "triton"
FRONT_END: Final = "frontend"
ENGINE: Final = "engine"
MODEL: Final = "model"
SERVE: Final = "serve"


class Line(NamedTuple):
    """One line of a log."""

    time: datetime
    level: str
    part: str
    """Which of our programs wrote it."""
    model: str
    """Whose line it is; empty if it is of no model."""
    text: str

    @property
    def is_for_screens(self) -> bool:
        """Whether the line is shown without `--verbose`."""
        if self.part == FRONT_END or (self.part == MODEL and _ALWAYS.match(self.text)):
            return True
        is_hidden = self.part == ENGINE or (self.part == TRITON and _NEVER.search(self.text))
        return not is_hidden and self.level != "INFO"

    def written(self, style: str) -> str:
        """Return it as text or as a JSON object, with the end of the line."""
        if style == JSON:
            return f"{json.dumps(self._asdict() | {'time': self.time.isoformat()})}\n"
        moment = self.time.isoformat(" ", "milliseconds")[:23]
        source = self.model if self.model and self.part in (MODEL, ENGINE) else self.part
        return f"{moment} {self.level:<7} {source}: {self.text}\n"


class LogFormat:
    """Rewrites what programs log.

    Args:
        style: one of `FORMATS`.
        shows_all: whether no line is left out.
    """

    def __init__(self, style: str = TEXT, *, shows_all: bool = True) -> None:
        self._style, self._shows_all = style, shows_all
        self.models: Collection[str] = ()
        """Names by which the models' lines are known."""
        self._before = Line(_now(), "INFO", TRITON, "", "")
        self._is_shown = shows_all

    def own(self, level: str, text: str) -> str:
        """Return a line of `serve` itself."""
        return Line(_now(), level, SERVE, self._model_of(text), text).written(self._style)

    def __call__(self, data: bytes) -> bytes:
        """Return whole lines of programs as they are to be shown."""
        lines = (self._line(raw) for raw in data.decode("utf-8", "replace").splitlines())
        return "".join(
            line.written(self._style) for line in lines if self._is_shown and line.text
        ).encode()

    def _line(self, raw: str) -> Line:
        """Return a line; one without a head of its own belongs to the line before it."""
        head = _HEAD.match(raw)
        text = raw[head.end() :] if head else raw
        level, part, model = "INFO", FRONT_END, ""
        if head and head["letter"]:
            level, text = _LEVELS[head["letter"]], _unquoted(text)
        if head is None or head["file"] == _STUB:
            # Without a head: a stub whose messages Triton no longer reads.
            part, model = ENGINE if text.startswith("[") else MODEL, self._model_of(text)
            text = text.removeprefix(f"{model}: ") if model else text
        elif head["file"]:
            part = TRITON
        else:
            level, found = head["level"] or level, _SERVED_MODEL.search(text)
            model = found[1] if found else ""
        if head is None and not model:
            return self._before._replace(time=_now(), text=raw.rstrip())
        self._before = line = Line(_now(), level, part, model, text)
        self._is_shown = self._shows_all or line.is_for_screens
        return line

    def _model_of(self, text: str) -> str:
        found = _NAME.match(text)
        return found[1] if found and found[1] in self.models else ""


def _unquoted(text: str) -> str:
    """Return a message of Triton without the quotes that releases from 24.07 on put around it."""
    if text[:1] == text[-1:] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text[1:-1]
    return text.removeprefix('"')


def _now() -> datetime:
    return datetime.now(timezone.utc).astimezone()
