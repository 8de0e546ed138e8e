"""One format for the lines of all programs that `serve` starts, and which of them a screen shows.

tritonserver, the front end and the engines each have a format of their own. A line of any of them
becomes time, level, who wrote it, and text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from datetime import datetime, timezone
from typing import Final, NamedTuple

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)

# I1126 12:01:50.430551 25647 model_lifecycle.cc:472] "loading: echo:1"
_TRITON: Final = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ([\w.-]+):\d+\] ?(.*)")
_LEVELS: Final = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
# 2026-11-26 12:01:50,722 INFO GET /ping status=503
_FRONT_END: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) (.*)"
)
_SERVED_MODEL: Final = re.compile(r" model=([\w.-]+)")
_COMMAND: Final = "lmi-backend: "
_STUB: Final = "logs.py"
"""Whose helper hands the stub's lines to Triton (`triton/logs.py`)."""
_ENGINE_LINE: Final = re.compile(r"\[([\w.-]+)/\d+\] ")
_MODEL: Final = re.compile(r"(?:worker |request model=)?([\w.-]+)[/: ]")
_REQUEST: Final = "request model="
_ADOPTION: Final = re.compile(r"worker \S+ is (not )?adopted")
"""What a stub says of a worker that has outlived the stub before it."""
_NO_GPU: Final = re.compile(
    r"Unable to allocate pinned system memory|CudaDriverHelper has not been initialized"
    r"|DCGM unable to start|Failed to initialize NVML"
)
"""What Triton says on each machine without a GPU, at the levels of warnings and errors."""
_FAILED_LOAD: Final = re.compile(
    r"ERROR: Failed to create instance|failed to load '|Invalid argument: load failed for model"
)
"""What Triton says three times of a model that cannot be loaded; `serve` says it once."""

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
        if self.part == FRONT_END or self.text.startswith(_REQUEST):
            return True
        if self.part == MODEL and _ADOPTION.match(self.text):
            return True
        if self.part == TRITON and (_NO_GPU.search(self.text) or _FAILED_LOAD.match(self.text)):
            return False
        return self.part != ENGINE and self.level != "INFO"

    @property
    def source(self) -> str:
        """The model, or the program, that a reader of text looks for."""
        return self.model if self.model and self.part in (MODEL, ENGINE) else self.part

    def written(self, style: str) -> str:
        """Return it as text or as a JSON object, with the end of the line."""
        if style == JSON:
            return f"{json.dumps(self._asdict() | {'time': self.time.isoformat()})}\n"
        moment = self.time.isoformat(" ", "milliseconds")[:23]
        return f"{moment} {self.level:<7} {self.source}: {self.text}\n"


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
        if found := _TRITON.fullmatch(raw):
            line = self._of_triton(*found.groups())
        elif found := _FRONT_END.fullmatch(raw):
            day, milliseconds, level, text = found.groups()
            time = datetime.fromisoformat(f"{day}.{milliseconds}").astimezone()
            served = _SERVED_MODEL.search(text)
            line = Line(time, level, FRONT_END, served[1] if served else "", text)
        elif raw.startswith(_COMMAND):
            line = Line(_now(), "INFO", FRONT_END, "", raw.removeprefix(_COMMAND))
        elif model := self._model_of(raw):
            # A stub whose messages Triton no longer reads.
            line = Line(_now(), "INFO", ENGINE if raw[0] == "[" else MODEL, model, raw)
        else:
            return self._before._replace(time=_now(), text=raw.rstrip())
        self._before = line
        self._is_shown = self._shows_all or line.is_for_screens
        return line

    def _of_triton(self, letter: str, file: str, text: str) -> Line:
        text = _unquoted(text)
        part = TRITON if file != _STUB else ENGINE if _ENGINE_LINE.match(text) else MODEL
        model = "" if part == TRITON else self._model_of(text)
        if part == MODEL and model:
            text = text.removeprefix(f"{model}: ")
        # Its own time names neither a year nor a zone.
        return Line(_now(), _LEVELS[letter], part, model, text)

    def _model_of(self, text: str) -> str:
        found = _ENGINE_LINE.match(text) or _MODEL.match(text)
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
