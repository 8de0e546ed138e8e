"""Turn what was written, and where, into one frozen `LmiOptions`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from lmi_backend.errors import OptionError
from lmi_backend.options import environment as env
from lmi_backend.options.option import PREFIX, Option
from lmi_backend.options.properties import Property, read_properties
from lmi_backend.options.setting import Setting
from lmi_backend.options.table import BY_KEY, OPTIONS

T = TypeVar("T")

FILE_NAME = "serving.properties"


@dataclass(frozen=True, kw_only=True)
class LmiOptions:
    """What the user said, checked. Index it with an `Option` to get the typed value."""

    folder: Path
    """Where serving.properties is; relative paths start here."""
    values: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    passthrough: Mapping[str, Setting] = field(default_factory=dict)
    """Engine argument name to setting, for keys that only the engine can judge."""
    notes: tuple[str, ...] = ()
    """What was ignored or overridden, one sentence each."""

    def __getitem__(self, option: Option[T]) -> T:
        return cast("T", self.values.get(option.name, option.default))

    def is_set(self, option: Option[Any]) -> bool:
        """Tell whether the user set it."""
        return option.name in self.values

    def error(self, option: Option[Any], problem: str) -> OptionError:
        """Build the error for a value that is well formed but cannot be used."""
        setting = self.settings.get(option.name)
        if setting is None:
            return OptionError(problem, option=option.name, origin="default")
        return OptionError(
            problem,
            option=setting.name,
            value=setting.value,
            origin=setting.origin,
            accepted=option.kind.accepted,
        )

    def locate(self, error: OptionError) -> OptionError:
        """Return an engine's complaint about an option with the place it was written at."""
        name = error.option.removeprefix(PREFIX)
        setting = self.passthrough.get(name) or self.settings.get(error.option)
        if setting is None:
            return error
        return OptionError(
            error.problem, option=setting.name, value=setting.value, origin=setting.origin
        )


def load_options(
    folder: Path, environment: Mapping[str, str], *, base: Path | None = None
) -> LmiOptions:
    """Read `serving.properties` of a folder, if it is there, and the environment.

    `base` is where relative paths in it start, if that is another folder.

    Raises:
        OptionError: an option is unknown, malformed, contradictory or refused.
        ConfigurationError: the file cannot be read.
    """
    path = folder / FILE_NAME
    properties = read_properties(path) if path.is_file() else []
    return resolve_options(properties, environment, folder=base or folder)


def resolve_options(
    properties: list[Property], environment: Mapping[str, str], *, folder: Path
) -> LmiOptions:
    """Apply precedence, aliases and types. See `load_options`."""
    collector = _Collector()
    for key, setting in env.overriding(environment):
        collector.add(key, setting)
    collector.seal("is overridden by the environment")
    # Java keeps the last of a repeated key.
    last = {entry.key: entry for entry in properties}
    for entry in last.values():
        collector.add(entry.key, Setting(entry.key, entry.value, f"{FILE_NAME}:{entry.line}"))
    collector.seal("")
    for key, setting in env.prefixed(environment):
        collector.add(key, setting)
    collector.seal("")
    for option in OPTIONS:
        setting_or_none = env.bare(environment, option)
        if setting_or_none is not None:
            collector.add(option.name, setting_or_none)
    return collector.finish(folder)


class _Collector:
    """Keeps the first source of each option, and refuses two that differ within one source."""

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = {}
        self.values: dict[str, Any] = {}
        self.passthrough: dict[str, Setting] = {}
        self.notes: list[str] = []
        self._sealed: dict[str, str] = {}

    def seal(self, note: str) -> None:
        """End a source: what it set stands against every later one; `note` says so if not empty."""
        for name in (*self.settings, *(PREFIX + name for name in self.passthrough)):
            self._sealed.setdefault(name, note)

    def add(self, key: str, setting: Setting) -> None:
        option = BY_KEY.get(key)
        if option is None:
            self._add_unknown(key, setting)
            return
        if option.name in self._sealed:
            if note := self._sealed[option.name]:
                self.notes.append(f"{setting.origin}: {setting.name} {note}")
            return
        if option.fate == "refused":
            raise OptionError(
                f"is not supported: {option.reason}",
                option=setting.name,
                value=setting.value,
                origin=setting.origin,
            )
        if option.fate == "ignored":
            self.notes.append(f"{setting.origin}: {setting.name} is ignored: {option.reason}")
            return
        value = _parse(option, setting)
        earlier = self.settings.get(option.name)
        if earlier is not None and self.values[option.name] != value:
            problem = f"contradicts {earlier.name}={earlier.value} ({earlier.origin})"
            raise OptionError(
                problem, option=setting.name, value=setting.value, origin=setting.origin
            )
        self.settings.setdefault(option.name, setting)
        self.values.setdefault(option.name, value)

    def _add_unknown(self, key: str, setting: Setting) -> None:
        if not key.startswith(PREFIX):
            raise OptionError(
                f"is not an option of LMI{closest(key, BY_KEY)}",
                option=setting.name,
                value=setting.value,
                origin=setting.origin,
            )
        if key not in self._sealed:
            self.passthrough[key.removeprefix(PREFIX)] = setting

    def finish(self, folder: Path) -> LmiOptions:
        return LmiOptions(
            folder=folder,
            values=dict(self.values),
            settings=dict(self.settings),
            passthrough=dict(self.passthrough),
            notes=tuple(self.notes),
        )


def closest(word: str, known: Mapping[str, object]) -> str:
    """Return a hint naming the known word that is most like this one, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parse(option: Option[T], setting: Setting) -> T:
    try:
        return option.kind.parse(setting.value.strip())
    except ValueError as error:
        raise OptionError(
            str(error),
            option=setting.name,
            value=setting.value,
            origin=setting.origin,
            accepted=option.kind.accepted,
        ) from error
