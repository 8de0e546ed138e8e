"""Which models LMI would load: SERVING_LOAD_MODELS, the model store, HF_MODEL_ID."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lmi_backend.errors import ConfigurationError

LOAD_MODELS = "SERVING_LOAD_MODELS"
MODEL_STORE = "SERVING_MODEL_STORE"
MODEL_ID = "HF_MODEL_ID"
IMAGE_MODEL = "SM_VLLM_MODEL"
"""The same for AWS's vLLM images."""
DEFAULT_STORE = Path("/opt/ml/model")
"""Where SageMaker puts the model, and LMI's images look for it."""

MODEL_FILES = ("config.json", "params.json")
"""One of them is in a model's folder: Hugging Face's format, or Mistral's own."""

_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")


def has_model(folder: Path) -> bool:
    """Tell whether a folder is a model."""
    return any((folder / name).is_file() for name in MODEL_FILES)


@dataclass(frozen=True)
class ModelUrl:
    """One entry of a load list: `name:version:engine:devices=url`, each part but the url empty."""

    url: str
    name: str = ""
    engine: str = ""
    devices: str = ""

    @property
    def folder(self) -> Path:
        """The local folder it names."""
        return Path(self.url.removeprefix("file://"))

    @property
    def model_name(self) -> str:
        """Its name: the one given, else the last part of the url."""
        return self.name or _NOT_IN_A_NAME.sub("_", self.url.rstrip("/").rpartition("/")[2])

    def is_for(self, folder: Path) -> bool:
        """Tell whether it names this folder."""
        return self.folder.is_absolute() and self.folder.resolve() == folder.resolve()


def model_urls(text: str) -> list[ModelUrl]:
    """Read a load list: entries with commas or blanks between; ALL and NONE name no entry.

    Raises:
        ConfigurationError: an entry has no url.
    """
    words = [word for word in re.split(r"[,\s]+", text) if word]
    return [_model_url(word) for word in words if word.upper() not in ("ALL", "NONE")]


def _model_url(word: str) -> ModelUrl:
    head, equals, url = word.strip("[]").rpartition("=")
    if not url:
        message = f"{LOAD_MODELS}: entry {word} has no folder; accepted: NAME::ENGINE=FOLDER"
        raise ConfigurationError(message)
    parts = (head.strip("[]") if equals else "").split(":")
    name, _version, engine, devices = (*parts, "", "", "", "")[:4]
    return ModelUrl(url.strip("[]"), name, engine, "" if devices == "*" else devices)


def models_of(environment: Mapping[str, str]) -> list[ModelUrl]:
    """Return the models a container with this environment would load.

    These are the models of the load list. If that is empty or ALL, they are the folders of the
    model store, or the store itself if it is one model. If that is empty too, it is the model of
    SM_VLLM_MODEL or HF_MODEL_ID.
    """
    text = environment.get(LOAD_MODELS, "").strip()
    if text.upper() == "NONE":
        return []
    entries = model_urls(text)
    if text and text.upper() != "ALL":
        return entries
    store = Path(environment.get(MODEL_STORE, "").strip() or DEFAULT_STORE)
    urls = [ModelUrl(str(folder)) for folder in store_folders(store)]
    model_id = model_id_of(environment)
    return urls if urls or not model_id else [model_of_id(model_id)]


def model_id_of(environment: Mapping[str, str]) -> str:
    """Return the model that variables name where there is not a folder."""
    given = (environment.get(name, "").strip() for name in (IMAGE_MODEL, MODEL_ID))
    return next(filter(None, given), "")


def model_of_id(model_id: str) -> ModelUrl:
    """Name a model of HF_MODEL_ID: by the whole hub id, or by the last part of a url or folder."""
    is_hub = ":" not in model_id and not model_id.startswith((".", "/"))
    return ModelUrl(model_id, _NOT_IN_A_NAME.sub("_", model_id) if is_hub else "")


def store_folders(store: Path) -> Iterator[Path]:
    """Yield the model folders of a store: its sub-folders, or itself if it holds one model.

    LMI's rule: every entry is a folder and none is hidden, or the store is the model.

    Raises:
        ConfigurationError: it cannot be read.
    """
    entries = _entries(store)
    if entries and not stray_entry(store):
        yield from entries
    elif entries:
        yield store


def stray_entry(store: Path) -> str:
    """Return what makes a folder no store, for people; empty if nothing does."""
    for entry in _entries(store):
        if entry.name.startswith("."):
            return f"{entry.name} is hidden"
        if not os.path.isdir(entry):
            return f"{entry.name} is not a folder"
    return ""


def _entries(store: Path) -> list[Path]:
    if not os.path.isdir(store):
        return []
    try:
        return sorted(store / name for name in os.listdir(store))
    except OSError as error:
        raise ConfigurationError(f"{store}: cannot be read: {error.strerror}") from error
