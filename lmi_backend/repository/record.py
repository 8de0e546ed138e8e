"""What the options were when a model was converted, so that a later edit can be named.

Triton shows the parameters of config.pbtxt to every client. So the record is a file of its own, as
readable as serving.properties. config.pbtxt gets no more than a digest. It is salted: a value that
is easily guessed would otherwise be found by trying.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.redaction import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.options.spec import WrittenSetting

RECORD: Final = "1/record.json"
"""Where it is in a model's folder."""
DIGEST: Final = "options_digest"
"""Parameter: salted digest of the record's options and source folder."""
OPTIONS: Final = "options"
"""Parameter of older conversions: the options as JSON; secrets are masked, not all of them."""
MODEL_DIR: Final = "model_dir"
"""Parameter of older conversions: folder of the user's serving.properties."""


@dataclass(frozen=True)
class Record:
    """The options of a conversion."""

    salt: str
    model_dir: str = ""
    """Folder of the user's serving.properties, where paths in it start; empty for the model's."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Without secrets, for people."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of each option, secrets included."""
    properties: str = ""
    """Digest of the serving.properties that was written with it."""

    @classmethod
    def of(
        cls, options: LmiOptions, salt: str, *, model_dir: str = "", properties: str = ""
    ) -> Record:
        """Return the record of what the user says now; `properties` is the file's text."""
        settings = _settings(options)
        return cls(
            salt,
            model_dir,
            {name: setting.shown for name, setting in settings.items()},
            {name: salted(salt, setting.value) for name, setting in settings.items()},
            salted(salt, properties) if properties else "",
        )

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """Return the record in a model's folder, if there is one.

        Raises:
            ConfigurationError: it cannot be read.
        """
        path = folder / RECORD
        try:
            record = cls(**json.loads(read_bounded(path)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"{path}: cannot be read: {error.strerror}; accepted: a file of the server's user: "
                "convert as that user, or give it to him with chown"
            ) from error
        except (ValueError, TypeError) as error:
            message = f"{path}: is not a record of lmi-backend: {error}; run convert again"
            raise ConfigurationError(message) from error
        return record

    @property
    def digest(self) -> str:
        """What config.pbtxt has of it."""
        return salted(self.salt, json.dumps([self.model_dir, self.digests], sort_keys=True))

    def as_text(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def new_salt() -> str:
    """Return a salt that nobody can guess."""
    return secrets.token_hex(16)


def salted(salt: str, text: str) -> str:
    """Return a digest that tells nothing to who does not know the salt."""
    data = text.encode("utf-8", "surrogateescape")
    return hmac.new(salt.encode(), data, hashlib.sha256).hexdigest()[:32]


def option_changes(
    parameters: Mapping[str, str], record: Record | None, options: LmiOptions
) -> Iterator[str]:
    """Yield a sentence for each option that differs from those of the conversion.

    `parameters` are those of config.pbtxt.
    """
    if OPTIONS in parameters:
        yield from _changes_of_old(parameters, options)
    elif record is None:
        if DIGEST in parameters:
            yield (
                f"{RECORD} is missing: changes of options since the conversion are not seen, and "
                "relative paths in serving.properties start in the model's folder; convert again"
            )
    else:
        if DIGEST in parameters and parameters[DIGEST] != record.digest:
            yield f"{RECORD} is not that of config.pbtxt; convert again"
        settings = _settings(options)
        now = {name: salted(record.salt, setting.value) for name, setting in settings.items()}
        changed = {n for n in {*now, *record.digests} if now.get(n) != record.digests.get(n)}
        for name in sorted(changed):
            yield _change(name, record.options.get(name), settings.get(name))


def _change(name: str, before: str | None, setting: WrittenSetting | None) -> str:
    if setting is None:
        return f"{name} was {before} at conversion and is not set now"
    if before is None:
        return f"{setting} was not set at conversion"
    if before == setting.shown:
        return f"{setting} was another value at conversion, which is not shown either"
    return f"{setting} was {before} at conversion"


def _changes_of_old(parameters: Mapping[str, str], options: LmiOptions) -> Iterator[str]:
    yield (
        "config.pbtxt is of an older conversion: clients can read options and paths in it; convert "
        "again"
    )
    settings = _settings(options)
    whole = json.dumps({n: setting.value for n, setting in settings.items()}, sort_keys=True)
    if parameters.get(DIGEST) == digest(whole):
        return
    then: dict[str, str] = json.loads(parameters[OPTIONS])
    for name in sorted({*then, *settings}):
        # It hid fewer secrets.
        before = masked(name, then[name]) if name in then else None
        setting = settings.get(name)
        if setting is None or before != setting.shown:
            yield _change(name, before, setting)


def digest(text: str) -> str:
    """Return a short digest of a text that is no secret."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def base_folder(folder: Path, parameters: Mapping[str, str], record: Record | None) -> Path | None:
    """Return where relative paths of a model start, if that is not its own folder.

    The parameter of an older conversion counts only if the folder's config.pbtxt has it: with
    Triton's model control a client can send a configuration of its own.
    """
    if record is not None:
        return Path(record.model_dir) if record.model_dir else None
    source: Any = parameters.get(MODEL_DIR)
    if not source or json.dumps(source, ensure_ascii=False) not in _config_text(folder):
        return None
    return Path(source)


def _config_text(folder: Path) -> str:
    try:
        return read_bounded(folder / "config.pbtxt").decode()
    except (OSError, ValueError):
        return ""


def _settings(options: LmiOptions) -> dict[str, WrittenSetting]:
    passed = {f"option.{name}": setting for name, setting in options.passthrough.items()}
    return {**options.settings, **passed}
