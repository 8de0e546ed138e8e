"""The models that a user names: folders, model stores, or LMI's environment."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lmi_backend.cli.arguments import path_of
from lmi_backend.errors import ConfigurationError
from lmi_backend.fetch.hub import HUB_ID
from lmi_backend.options import FILE_NAME
from lmi_backend.options.model_store import (
    DEFAULT_STORE,
    LOAD_MODELS,
    MODEL_FILES,
    MODEL_ID,
    MODEL_STORE,
    ModelUrl,
    model_id_of,
    model_of_id,
    models_of,
    store_folders,
    stray_entry,
)
from lmi_backend.options.properties import Property, as_property
from lmi_backend.options.spec import PREFIX, WrittenSetting
from lmi_backend.options.table import common as opt
from lmi_backend.printable import listed, printable, say
from lmi_backend.repository.files import CONFIG, has_own_properties, read
from lmi_backend.repository.files import replace as replace_file

_MARKS = (FILE_NAME, *MODEL_FILES)
_ACCEPTED = f"a folder with a {FILE_NAME} or weights"
_PARTS_OF_ID = 2


@dataclass(frozen=True)
class LmiFolder:
    name: str
    folder: Path
    given: tuple[Property, ...] | None = None
    """What stands for its serving.properties; None where its folder may have one."""


def model_folder(path: Path) -> Path:
    """Return the LMI folder a path names: the folder, or its serving.properties."""
    folder = path.parent if path.name == FILE_NAME else path
    if not os.path.isdir(folder):
        raise ConfigurationError(f"{path}: is not a folder; accepted: {_ACCEPTED}{_other(path)}")
    if not _is_model(folder):
        problem = f"{folder}: has neither {' nor '.join(_MARKS)}"
        if os.path.isfile(folder / CONFIG):
            problem += "; `lmi-backend migrate` reads folders of Triton's vLLM backend"
        elif (stray := stray_entry(folder)) and any(map(_is_model, folder.iterdir())):
            problem += f", and is not a store of models: {stray}; accepted in a store: folders only"
        raise ConfigurationError(problem)
    return folder


def _other(path: Path) -> str:
    first = path.parts[0] if path.parts else ""
    if len(path.parts) == _PARTS_OF_ID and os.path.isdir(first) and first not in (".", "..", "/"):
        return f". {first} is a folder here: {MODEL_ID}={path} names the model of the Hub"
    return ", or a model of the Hub as ORGANISATION/NAME"


def is_remote(name: str) -> bool:
    if "://" in name:
        return True
    first, slash, _ = name.partition("/")
    return bool(slash and HUB_ID.fullmatch(name)) and not os.path.isdir(first)


def add_path(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "path",
        nargs="?",
        metavar="PATH",
        help=f"{what}, or a store of such folders; default: what the environment configures, as "
        f"{LOAD_MODELS}, /opt/ml/model or {MODEL_ID}",
    )


def add_model(parser: argparse.ArgumentParser, what: str) -> None:
    add_path(parser, f"a model of the Hub as ORGANISATION/NAME, a folder of weights, {what}")
    add_save(parser)


def add_save(parser: argparse.ArgumentParser) -> None:
    what = "write the serving.properties that the model and its flags stand for into a folder"
    parser.add_argument("--save", type=path_of, metavar="FOLDER", help=what)


def models_at(arguments: argparse.Namespace) -> list[LmiFolder]:
    paths = [arguments.path] if arguments.path else []
    # A model with variables only has no folder yet: none of its paths is found.
    models = find_models(paths, DEFAULT_STORE)
    return with_flags(models, arguments) if hasattr(arguments, "flags") else models


def with_flags(models: list[LmiFolder], arguments: argparse.Namespace) -> list[LmiFolder]:
    """Return models with the options that flags set; log and save what stands for their file."""
    flags: list[Property] = arguments.flags
    word = flags[0].flag if flags else "--save"
    save: Path | None = getattr(arguments, "save", None)
    if flags or save:
        if len(models) > 1:
            raise ConfigurationError(f"{word}: is for one model; there are {len(models)}")
        (model,) = models
        file = model.folder / FILE_NAME
        if model.given is None and os.path.isfile(file):
            advice = f"; write {as_property(flags[0].key, flags[0].value)} there" if flags else ""
            raise ConfigurationError(f"{word}: {file} has the options of this model{advice}")
        own = model.given
        if own is None:
            own = (Property(opt.MODEL_ID.name, str(model.folder.resolve()), 0, "PATH"),)
        models = [replace(model, given=(*own, *flags))]
    for model in models:
        if model.given:
            say(f"{model.name}: the command line stands for this {FILE_NAME}:")
            for each in model.given:
                say(f"    {WrittenSetting(each.key, each.value, '').written}")
        if save:
            _save(model, save)
    return models


def _save(model: LmiFolder, folder: Path) -> None:
    text = "".join(f"{as_property(each.key, each.value)}\n" for each in model.given or ())
    file = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.path.isfile(file) and read(file) != text:
            raise ConfigurationError(
                f"--save {folder}: has another {FILE_NAME}; accepted: a new folder"
            )
        replace_file(file, text)
    except OSError as error:
        raise ConfigurationError(f"--save {folder}: {error.strerror}") from error
    say(f"{model.name}: written to {file}")


def model_at(arguments: argparse.Namespace) -> LmiFolder:
    model, *others = models_at(arguments)
    if others:
        names = listed([model.name, *(each.name for each in others)])
        raise ConfigurationError(
            f"there are {1 + len(others)} models ({names}); accepted: PATH of one"
        )
    return model


def find_models(paths: Sequence[str], repository: Path) -> list[LmiFolder]:
    """Return the models at some paths; of LMI's own environment if there are none.

    `repository` has the folder of a model with variables or flags only.
    """
    if paths:
        models = [model for path in paths for model in _models(path, repository)]
    else:
        models = [_listed(entry, repository) for entry in models_of(os.environ)]
    if not models:
        raise ConfigurationError(
            f"no PATH, and no model in {LOAD_MODELS}, {MODEL_STORE}, /opt/ml/model, {MODEL_ID}"
        )
    models = [replace(model, name=_valid(model.name)) for model in models]
    name, count = Counter(model.name for model in models).most_common(1)[0]
    if count > 1:
        message = f"{count} models are named {name}; accepted: folders with different names"
        raise ConfigurationError(message)
    return models


def _valid(name: str) -> str:
    valid = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).lstrip("_.-") or "model"
    if valid != name:
        problem = "is not a valid name of a Triton model"
        say(f"{printable(name)}: {problem}; it is served as {valid}", "WARNING")
    return valid


def _listed(entry: ModelUrl, repository: Path) -> LmiFolder:
    if entry.url == model_id_of(os.environ) and not os.path.isdir(entry.folder):
        folder = repository / entry.model_name
        return LmiFolder(entry.model_name, folder, None if has_own_properties(folder) else ())
    if not os.path.exists(entry.folder):
        raise ConfigurationError(
            f"{LOAD_MODELS}: {printable(str(entry.folder))} is not there; accepted: a folder, as "
            "FOLDER or NAME:VERSION:ENGINE:DEVICES=FOLDER"
        )
    return LmiFolder(entry.model_name, model_folder(entry.folder))


def _models(path: str, repository: Path) -> list[LmiFolder]:
    if not is_remote(path):
        return [LmiFolder(folder.resolve().name, folder) for folder in _folders(Path(path))]
    name = model_of_id(path).model_name
    folder = repository / name
    if has_own_properties(folder):
        return [LmiFolder(name, folder)]
    given = [Property(opt.MODEL_ID.name, path, 0, "PATH")]
    if "://" not in path:
        # As other servers have it: what is typed is what clients send.
        given.append(Property(f"{PREFIX}served_model_name", path, 0, "PATH"))
    return [LmiFolder(name, folder, tuple(given))]


def _folders(path: Path) -> list[Path]:
    if not os.path.isdir(path) or _is_model(path):
        return [model_folder(path)]
    folders = list(store_folders(path))
    if not (inside := [folder for folder in folders if _is_model(folder)]):
        return [model_folder(path)]
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK):
            say(f"{folder}: cannot be read, and is left out", "WARNING")
    return inside


def _is_model(folder: Path) -> bool:
    return any(os.path.isfile(folder / name) for name in _MARKS)
