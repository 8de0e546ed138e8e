"""The files of a deployment: templates with what a model needs put in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from lmi_backend.deploy.chart import helm
from lmi_backend.deploy.extras import extra_files
from lmi_backend.deploy.filling import NAME_LABEL, STORE, TEMPLATES, fill, values_of
from lmi_backend.deploy.kubernetes import kustomization, patch
from lmi_backend.deploy.needs import UNKNOWN_DOWNLOAD_SECONDS, Needs
from lmi_backend.deploy.served import Served
from lmi_backend.deploy.yaml_text import yaml_text
from lmi_backend.units import GIB

_VOLUME: Final = """
      - type: bind
        source: {}
        target: {}
        read_only: true"""
REPOSITORY_IMAGE: Final = "lmi-backend:cpu"
"""Of deploy/ in the repository, which anybody can build."""
_ANY_MODEL: Final = Needs(download_seconds=UNKNOWN_DOWNLOAD_SECONDS)
"""Of its manifests, which know no model."""


def base_files() -> dict[str, str]:
    """Return the Kustomize base, which knows no model."""
    values = values_of(_ANY_MODEL, REPOSITORY_IMAGE)
    folder = TEMPLATES / "kubernetes"
    return {path.name: fill(path, values) for path in sorted(folder.iterdir())}


def repository_manifests() -> dict[str, str]:
    """Return the base of deploy/kubernetes, and a component that has its pods scraped."""
    values = values_of(_ANY_MODEL, REPOSITORY_IMAGE) | {"selector_of_one": NAME_LABEL}
    about = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    component = {
        "kustomization.yaml": yaml_text({**about, "resources": ["podmonitor.yaml"]}),
        "podmonitor.yaml": fill(TEMPLATES / "extras" / "monitor.yaml", values),
    }
    files = {f"base/{name}": text for name, text in base_files().items()}
    return files | {f"components/monitor/{name}": text for name, text in component.items()}


def kubernetes(served: Served) -> dict[str, str]:
    """Return a folder for `kubectl apply -k`: path to text."""
    files = extra_files(served)
    others = [name for name in files if "/" not in name]
    files |= {"kustomization.yaml": kustomization(served, others), "needs.yaml": patch(served)}
    files |= {f"base/{name}": text for name, text in base_files().items()}
    return files | {f"model/{name}": text for name, text in served.texts.items()}


def compose(served: Served) -> dict[str, str]:
    """Return the file for `docker compose up`."""
    gpus = ""
    if served.needs.devices:
        gpus = f"\n    gpus:\n      - count: {served.needs.devices}\n        capabilities: [gpu]"
    folder = _compose_word(str(served.folder)) if served.folder else ""
    return _compose(served, folder, gpus, "docker compose up")


def repository_compose() -> dict[str, str]:
    """Return deploy/compose.yaml, which builds its image and serves what MODEL names."""
    served = Served(
        name="model",
        title="model",
        image=REPOSITORY_IMAGE,
        needs=_ANY_MODEL,
        folder=None,
        place=f"{STORE}/model",
        words=(f"{STORE}/model",),
    )
    usage = "MODEL=$PWD/my-model docker compose -f deploy/compose.yaml up\n#\n"
    usage += "# With GPUs: `target: vllm` (or trtllm), `image: lmi-backend:vllm`, and `gpus: all`."
    build = "\n    build:\n      context: ..\n      target: cpu"
    return _compose(served, "${MODEL:?the LMI folder to serve}", "", usage, build)


def _compose(
    served: Served, model: str, devices: str, usage: str, build: str = ""
) -> dict[str, str]:
    variables = [
        f"\n      - {_compose_word(f'{name}={value}')}" for name, value in served.variables.items()
    ]
    values = values_of(served.needs, served.image)
    values |= {"devices": devices, "usage": usage, "build": build}
    values |= {"words": "".join(f"{word}, " for word in served.words)}
    values |= {"volumes": _VOLUME.format(model, served.place) if served.place else ""}
    values |= {"variables": "".join(variables)}
    values |= {"shm": f"{served.needs.shared_memory // GIB}gb"}
    return {"compose.yaml": fill(TEMPLATES / "compose.yaml", values)}


def systemd(served: Served) -> dict[str, str]:
    """Return a unit that serves with this installation."""
    folder = [_unit_word(str(served.folder))] if served.folder else []
    variables = [
        f"Environment={_unit_value(f'{name}={value}')}\n"
        for name, value in served.variables.items()
    ]
    values = values_of(served.needs, served.image) | {
        "name": f"lmi-backend-{served.name}",
        "model": served.title,
        "words": "".join(f" {word}" for word in folder),
        "variables": "".join(variables),
        "command": _unit_word(str(Path(sys.executable).parent / "lmi-backend")),
    }
    return {f"lmi-backend-{served.name}.service": fill(TEMPLATES / "systemd.service", values)}


TARGETS: Final = {"kubernetes": kubernetes, "helm": helm, "compose": compose, "systemd": systemd}


def _compose_word(text: str) -> str:
    """Write an argument for Compose, in which no variable is read."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)


def _unit_word(text: str) -> str:
    """Write an argument of a unit's command, in which no variable or specifier is read."""
    return _unit_value(text.replace("$", "$$"))


def _unit_value(text: str) -> str:
    """Write a value for a unit, in which no specifier is read; a dollar is one there."""
    return json.dumps(text.replace("%", "%%"), ensure_ascii=False)
