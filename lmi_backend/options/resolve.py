"""Turn what was written, and where, into one frozen `LmiOptions`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from lmi_backend.errors import OptionError
from lmi_backend.options import sources
from lmi_backend.options.engine_choice import choose_engine, find_interpreter
from lmi_backend.options.hints import REMARK, closest, remark_in
from lmi_backend.options.model_store import LOAD_MODELS
from lmi_backend.options.properties import Property, read_properties
from lmi_backend.options.signature import NO_FLAG, Signature, signature
from lmi_backend.options.sources import COMMAND_LINE, FILE_NAME
from lmi_backend.options.spec import (
    PREFIX,
    AnyOption,
    Classification,
    LmiOptions,
    Option,
    Status,
    WrittenSetting,
    default_choice,
    default_engine,
)
from lmi_backend.options.table import (
    CHOICE,
    KEYS,
    OPTIONS,
    VARIABLES,
    common,
    find_option,
    live_keys,
)
from lmi_backend.options.table.variables import SERVER_FLAGS

_MOST_FLAGS: Final = 4
"""Flags of one beginning that an error lists."""


def release_with_flags(options: LmiOptions, environment: Mapping[str, str]) -> Signature | None:
    """Return what the engine's release takes; None if no flags set its arguments."""
    implementation = options.choice.spec.implementation
    if implementation.source is None or not implementation.source.has_flags:
        return None
    try:
        python = find_interpreter(options, environment)
    except OptionError:
        # The plan reports it.
        return None
    return signature(implementation.name, python)


def spelt_out(key: str, setting: WrittenSetting, release: Signature) -> str:
    """Return the key of the argument that the command line of a release makes of a key.

    Raises:
        OptionError: the key is the beginning of several flags, or a part of an object.
    """
    name = key.removeprefix(PREFIX)
    first, dot, path = name.partition(".")
    if dot and (first in {**release.arguments, **release.server} or PREFIX + first in KEYS):
        written = setting.name[: -len(path) - 1]
        accepted = f"one JSON text, as {written}={_as_object(path, setting.value)}"
        raise setting.error("is a part of an object", accepted)
    try:
        return PREFIX + argument_of(name, release)
    except ValueError as error:
        raise setting.error(f"is not clear to {release.engine}'s command line: {error}") from None


def argument_of(name: str, release: Signature) -> str:
    """Return the argument that a flag of a name, or of its beginning, sets; else the name itself.

    Raises:
        ValueError: the name is the beginning of several flags.
    """
    names = (name for name, each in release.arguments.items() if each.flag != NO_FLAG)
    more = SERVER_FLAGS if release.listener else ()
    own = dict.fromkeys((*names, *release.server, *release.listener, *release.opposites, *more))
    flags = {**release.spellings, **{name: name for name in own}}
    plain = name.replace("-", "_")
    begun = [plain] if plain in flags else [each for each in flags if each.startswith(plain)]
    if len({flags[each] for each in begun}) > 1:
        listed = ", ".join(f"--{each.replace('_', '-')}" for each in begun[:_MOST_FLAGS])
        raise ValueError(f"it could match {listed}")
    return flags[begun[0]] if begun else name


def _as_object(path: str, value: str) -> str:
    """Return a value under the keys of a dotted path: `1` at `a.b` is `{"a": {"b": 1}}`."""
    try:
        made = json.loads(value)
    except (ValueError, RecursionError):
        made = value
    for key in reversed(path.split(".")):
        made = {key: made}
    return json.dumps(made)


T = TypeVar("T")

_ENGINE_NAMES: Final = (common.ENGINE.name, common.ENGINE.variable, LOAD_MODELS)
_NOTHING: Final = "nothing is written after it"
_KEY = re.compile(re.escape(PREFIX) + r"[\w.-]{1,100}")
"""What may be an engine's argument: anything else no engine can have."""


def load_options(
    folder: Path,
    environment: Mapping[str, str],
    *,
    base: Path | None = None,
    given: Sequence[Property] | None = None,
) -> LmiOptions:
    """Read `serving.properties` of a folder, if it is there, and the environment.

    Args:
        base: where relative paths in it start, if that is another folder.
        given: what stands for the file, which is not read then.

    Raises:
        OptionError: an option is unknown, malformed, contradictory or refused.
        ConfigurationError: the file cannot be read.
    """
    properties = _read(folder) if given is None else given
    return resolve_options(properties, environment, folder=base or folder)


def examine_options(
    folder: Path, environment: Mapping[str, str], given: Sequence[Property] | None = None
) -> tuple[LmiOptions, list[OptionError]]:
    """Return the options that stand and every error, where `load_options` raises the first."""
    return _examine(_read(folder) if given is None else given, environment, folder)


def resolve_options(
    properties: Sequence[Property], environment: Mapping[str, str], *, folder: Path
) -> LmiOptions:
    """Apply precedence, aliases and types. See `load_options`."""
    options, errors = _examine(properties, environment, folder)
    if errors:
        raise errors[0]
    return options


def _read(folder: Path) -> list[Property]:
    return read_properties(path) if os.path.isfile(path := folder / FILE_NAME) else []


def _examine(
    properties: Sequence[Property], environment: Mapping[str, str], folder: Path
) -> tuple[LmiOptions, list[OptionError]]:
    layers = [
        list(sources.overriding(environment, folder)),
        [(entry.key, _written(entry)) for entry in properties],
        list(sources.prefixed(environment)),
        list(sources.flags(environment)),
    ]
    # What every option means depends on the engine, so the options that choose it come first.
    choosing = _Collector(default_engine())
    choosing.add_layers([[item for item in layer if item[0] in CHOICE] for layer in layers])
    choosing.add_bare(environment)
    if any(error.option in _ENGINE_NAMES for error in choosing.errors):
        # What the other keys mean only that engine could say.
        choosing.leave([item for layer in layers for item in layer if item[0] not in CHOICE])
        return choosing.finish(folder), choosing.errors[:1]
    errors = []
    try:
        choice = choose_engine(choosing.finish(folder), environment)
    except OptionError as error:
        # The rest is read as LMI's default would be, so that every error is found at once.
        errors, choice = [error], default_choice()
    chosen = replace(choosing.finish(folder), choice=choice)
    collector = _Collector(choice.engine, partial(release_with_flags, chosen, environment))
    collector.add_layers(layers)
    collector.add_bare(environment)
    collector.add_variables(environment)
    return replace(collector.finish(folder), choice=choice), [*errors, *collector.errors]


def _written(entry: Property) -> WrittenSetting:
    if entry.flag:
        return WrittenSetting(entry.flag, entry.value, COMMAND_LINE)
    return WrittenSetting(entry.key, entry.value, f"{FILE_NAME}:{entry.line}")


class _Collector:
    """Gives each setting its status: the first source wins; two that differ in it are refused."""

    def __init__(
        self, engine: str, find_release: Callable[[], Signature | None] = lambda: None
    ) -> None:
        self.errors: list[OptionError] = []
        self._find_release = find_release
        self._engine = engine
        self._settings: dict[str, WrittenSetting] = {}
        self._values: dict[str, Any] = {}
        self._passthrough: dict[str, WrittenSetting] = {}
        self._classifications: list[Classification] = []
        self._sealed: dict[str, WrittenSetting] = {}

    def add_layers(self, layers: Iterable[list[tuple[str, WrittenSetting]]]) -> None:
        """Add each source, best first."""
        for layer in layers:
            # Java keeps the last of a repeated key.
            last = dict(layer)
            for key, setting in layer:
                if last[key] is setting:
                    self._try(key, setting)
                else:
                    self._classify(setting, Status("ignored", f"{last[key].origin} repeats it"))
            self._seal()

    def add_bare(self, environment: Mapping[str, str]) -> None:
        """Add the bare variables, the weakest source."""
        for option in OPTIONS:
            settings = [*sources.bare(environment, option)]
            # Few have any, and most of a plan's time would go into asking all for their engines.
            if settings and self._engine in option.engines:
                for setting in settings:
                    self._try(option.name, setting)
                    self._seal()

    def add_variables(self, environment: Mapping[str, str]) -> None:
        """Add the variables that are no options."""
        for name, status in VARIABLES.items():
            for variable in environment if name.endswith("*") else (name,):
                if variable.startswith(name.rstrip("*")) and (value := environment.get(variable)):
                    self._add_variable(WrittenSetting(variable, value, sources.ORIGIN), status)
        for variable in self._values.get(common.ENV.name, ()):
            env, outcome = self._settings[common.ENV.name], VARIABLES.get(variable)
            if outcome is not None and outcome.word == "refused":
                problem = f"has {variable}, which is not supported: {outcome.detail}"
                self.errors.append(env.error(problem))
            elif outcome is not None and outcome.word == "ignored":
                self._classify(WrittenSetting(variable, "***", env.origin), outcome)
        for setting, reason in sources.left_out(environment):
            self._classify(setting, Status("ignored", reason))
        read = {each.setting.name for each in self._classifications}
        for setting, reason in sources.unknown(environment, self._engine, read):
            self._classify(setting, Status("ignored", reason))

    def leave(self, settings: Iterable[tuple[str, WrittenSetting]]) -> None:
        """Add settings that are not looked at."""
        for _, setting in settings:
            self._classify(setting, Status("ignored", "only that engine could say what it means"))

    def finish(self, folder: Path) -> LmiOptions:
        return LmiOptions(
            folder=folder,
            values=dict(self._values),
            settings=dict(self._settings),
            passthrough=dict(self._passthrough),
            classifications=tuple(self._classifications),
        )

    def _seal(self) -> None:
        """End a source: what it set stands against every later one."""
        self._sealed |= self._settings
        self._sealed |= {PREFIX + name: setting for name, setting in self._passthrough.items()}

    def _try(self, key: str, setting: WrittenSetting) -> None:
        try:
            self._add(key, setting)
        except OptionError as error:
            self.errors.append(error)
            self._classify(setting, Status("refused", error.problem))

    def _add(self, key: str, setting: WrittenSetting) -> None:
        if key not in KEYS and key.startswith(PREFIX) and (release := self._find_release()):
            key = spelt_out(key, setting, release)
        option = find_option(key, self._engine)
        name, text = option.name if option else key, setting.value
        if name in self._sealed:
            winner = self._sealed[name]
            word = "says the same" if winner.value == text else "wins"
            self._classify(setting, Status("ignored", f"{winner.name} ({winner.origin}) {word}"))
        elif option is None:
            self._add_unknown(key, setting)
        elif option.kind.name == "text" and not text.strip():
            self._classify(setting, Status("ignored", _NOTHING))
        elif option.else_ignored and not (option.can_read(text) or remark_in(text)):
            self._classify(setting, Status("ignored", option.else_ignored))
        elif option.status == "mapped":
            self._add_mapped(option, setting)
        elif option.status == "refused" and not option.is_harmless(setting.value):
            raise setting.error(f"is not supported: {option.reason}")
        else:
            self._classify(setting, Status("ignored", option.reason))

    def _add_mapped(self, option: AnyOption, setting: WrittenSetting) -> None:
        value = _parse(option, setting)
        earlier = self._settings.get(option.name)
        if earlier is not None and self._values[option.name] != value:
            raise setting.error(f"contradicts {earlier.written} ({earlier.origin})")
        self._settings.setdefault(option.name, setting)
        self._values.setdefault(option.name, value)
        self._classify(setting, option.status_under(self._engine))

    def _add_unknown(self, key: str, setting: WrittenSetting) -> None:
        if PREFIX + key in live_keys(self._engine):
            self._classify(setting, Status("ignored", f"LMI reads it as {PREFIX}{key} alone"))
            return
        if not _KEY.fullmatch(key):
            raise setting.error(f"is not an option of LMI{closest(key, live_keys(self._engine))}")
        if remark_in(setting.value):
            raise setting.error(REMARK)
        # No argument of an engine means something else with blanks at its ends.
        setting = replace(setting, value=setting.value.strip())
        earlier = self._passthrough.setdefault(key.removeprefix(PREFIX), setting)
        if earlier.value != setting.value:
            raise setting.error(f"contradicts {earlier.written} ({earlier.origin})")
        self._classify(setting, Status("passed", ""))

    def _add_variable(self, setting: WrittenSetting, status: Status) -> None:
        if status.word == "refused":
            if setting.value.strip().lower() in ("false", "0"):
                return
            self.errors.append(setting.error(f"is not supported: {status.detail}"))
        self._classify(setting, status)

    def _classify(self, setting: WrittenSetting, status: Status) -> None:
        self._classifications.append(Classification(setting, status))


def _parse(option: Option[T], setting: WrittenSetting) -> T:
    if remark_in(setting.value) and not option.kind.is_free:
        raise setting.error(REMARK)
    try:
        return option.kind.parse(setting.value.strip())
    except (ValueError, OverflowError) as error:
        raise setting.error(str(error), option.kind.accepted) from error
