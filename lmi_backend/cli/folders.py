"""The models that a user names: folders, model stores, or LMI's environment."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME
from lmi_backend.options.model_store import (
    DEFAULT_STORE,
    LOAD_MODELS,
    MODEL_FILES,
    MODEL_ID,
    MODEL_STORE,
    ModelUrl,
    model_id_of,
    models_of,
    store_folders,
    stray_entry,
)
from lmi_backend.printable import listed, say
from lmi_backend.repository.environment import has_own_properties
from lmi_backend.repository.files import CONFIG

_MARKS = (FILE_NAME, *MODEL_FILES)


@dataclass(frozen=True)
class LmiFolder:
    """An LMI folder and the name it is served under."""

    name: str
    folder: Path
    has_file: bool = True
    """Whether properties of its user may be in the folder; else the variables say everything."""


def model_folder(path: Path) -> Path:
    """Return the LMI folder a path names: the folder, or its serving.properties.

    Raises:
        ConfigurationError: there is nothing to serve at the path.
    """
    folder = path.parent if path.name == FILE_NAME else path
    if not os.path.isdir(folder):
        raise ConfigurationError(f"{path}: is not a folder; accepted: a folder with a {FILE_NAME}")
    if not _is_model(folder):
        problem = f"{folder}: has neither {' nor '.join(_MARKS)}"
        if os.path.isfile(folder / CONFIG):
            problem += "; `lmi-backend migrate` reads folders of Triton's vLLM backend"
        elif (stray := stray_entry(folder)) and any(map(_is_model, folder.iterdir())):
            problem += f", and is no store of models: {stray}; accepted in a store: folders only"
        raise ConfigurationError(problem)
    return folder


def add_path(parser: argparse.ArgumentParser, what: str) -> None:
    """Add PATH, which may be left out; `models_at` reads it."""
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        metavar="PATH",
        help=f"{what}, or a store of such folders; default: what the environment configures, as "
        f"{LOAD_MODELS}, /opt/ml/model or {MODEL_ID}",
    )


def models_at(arguments: argparse.Namespace, environment: Mapping[str, str]) -> list[LmiFolder]:
    """Return the models that the argument of `add_path` names, or the environment.

    Raises:
        ConfigurationError: there is nothing to serve.
    """
    # A model with variables only has no folder yet: none of its paths is found.
    return find_models([arguments.path] if arguments.path else [], environment, DEFAULT_STORE)


def model_at(arguments: argparse.Namespace, environment: Mapping[str, str]) -> LmiFolder:
    """Return the only model that `models_at` finds.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    model, *others = models_at(arguments, environment)
    if others:
        names = listed([model.name, *(each.name for each in others)])
        raise ConfigurationError(
            f"there are {1 + len(others)} models ({names}); accepted: PATH of one"
        )
    return model


def find_models(
    paths: Sequence[Path], environment: Mapping[str, str], repository: Path
) -> list[LmiFolder]:
    """Return the models of some folders and stores; of LMI's own environment if there are none.

    A model with variables only has its folder in the Triton repository.

    Raises:
        ConfigurationError: there is nothing to serve, or two models have one name.
    """
    if paths:
        folders = [folder for path in paths for folder in _folders(path)]
        models = [LmiFolder(folder.resolve().name, folder) for folder in folders]
    else:
        models = [_listed(entry, environment, repository) for entry in models_of(environment)]
    if not models:
        raise ConfigurationError(
            f"no PATH, and no model in {LOAD_MODELS}, {MODEL_STORE}, /opt/ml/model, {MODEL_ID}"
        )
    name, count = Counter(model.name for model in models).most_common(1)[0]
    if count > 1:
        message = f"{count} models are named {name}; accepted: folders with different names"
        raise ConfigurationError(message)
    return models


def _listed(entry: ModelUrl, environment: Mapping[str, str], repository: Path) -> LmiFolder:
    if entry.url == model_id_of(environment) and not os.path.isdir(entry.folder):
        folder = repository / entry.model_name
        return LmiFolder(entry.model_name, folder, has_own_properties(folder))
    return LmiFolder(entry.model_name, model_folder(entry.folder))


def _folders(path: Path) -> list[Path]:
    """Return the model at a path, or the models of the store there."""
    if not os.path.isdir(path) or _is_model(path):
        return [model_folder(path)]
    found = list(store_folders(path))
    if not (inside := [folder for folder in found if _is_model(folder)]):
        return [model_folder(path)]
    for folder in found:
        if not os.access(folder, os.R_OK | os.X_OK):
            say(f"{folder}: cannot be read, and is left out", "WARNING")
    return inside


def _is_model(folder: Path) -> bool:
    return any(os.path.isfile(folder / name) for name in _MARKS)
