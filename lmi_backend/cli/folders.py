"""The models that a user names: folders, model stores, or LMI's environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import FILE_NAME
from lmi_backend.options.model_store import (
    LOAD_MODELS,
    MODEL_FILES,
    MODEL_ID,
    MODEL_STORE,
    ModelUrl,
    model_id_of,
    models_of,
    store_folders,
)

_MARKS = (FILE_NAME, *MODEL_FILES)


@dataclass(frozen=True)
class Model:
    """An LMI folder and the name it is served under."""

    name: str
    folder: Path


def model_folder(path: Path) -> Path:
    """Return the LMI folder a path names: the folder, or its serving.properties.

    Raises:
        ConfigurationError: there is nothing to serve at the path.
    """
    folder = path.parent if path.name == FILE_NAME else path
    if not folder.is_dir():
        raise ConfigurationError(f"{path}: is not a folder; accepted: a folder with a {FILE_NAME}")
    if not _is_model(folder):
        raise ConfigurationError(f"{folder}: has neither {' nor '.join(_MARKS)}")
    return folder


def find_models(
    paths: Sequence[Path], environment: Mapping[str, str], repository: Path
) -> list[Model]:
    """Return the models of some folders and stores; of LMI's own environment if there are none.

    A model of which there are only variables has its folder in the Triton repository.

    Raises:
        ConfigurationError: there is nothing to serve, or two models have one name.
    """
    if paths:
        folders = [folder for path in paths for folder in _folders(path)]
        models = [Model(folder.resolve().name, folder) for folder in folders]
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


def _listed(entry: ModelUrl, environment: Mapping[str, str], repository: Path) -> Model:
    if entry.url == model_id_of(environment) and not entry.folder.is_dir():
        return Model(entry.model_name, repository / entry.model_name)
    return Model(entry.model_name, model_folder(entry.folder))


def _folders(path: Path) -> list[Path]:
    """Return the model at a path, or the models of the store there."""
    if path.is_dir() and not _is_model(path):
        inside = [folder for folder in store_folders(path) if _is_model(folder)]
        if inside:
            return inside
    return [model_folder(path)]


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _MARKS)
