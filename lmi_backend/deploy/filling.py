"""Fill the templates of manifests."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.needs import (
    LEAVE_SECONDS,
    LIVE_FAILURES,
    LIVE_PERIOD,
    PROBE_SECONDS,
    STARTUP_PERIOD,
    USER,
    Needs,
)
from lmi_backend.front_end_settings import PORT
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES: Final = Path(__file__).parent / "templates"
STORE: Final = "/opt/ml/model"
"""Where the base mounts the model."""
NAME_LABEL: Final = "app.kubernetes.io/name: lmi-backend"
_MODEL_MOUNT: Final = """
            - name: model
              mountPath: {}
              readOnly: true"""
ADAPTERS_MOUNT: Final = """
            - name: adapters
              mountPath: /adapters
              readOnly: true"""


def fill(path: Path, values: Mapping[str, str]) -> str:
    """Return the text of a template with its values."""
    return Template(path.read_text(encoding="utf-8")).substitute(values)


def model_mount(place: str) -> str:
    """Return where a container finds the model's folder."""
    return _MODEL_MOUNT.format(place)


def values_of(needs: Needs, image: str) -> dict[str, str]:
    """Return the values of a server without its model, as the Kustomize base has them."""
    return {
        "user": str(USER),
        "port": str(PORT),
        "image": image,
        "leave_seconds": str(LEAVE_SECONDS),
        "grace_seconds": str(needs.grace_seconds),
        "stop_seconds": str(needs.stop_seconds),
        "drain_seconds": str(needs.request_seconds),
        "start_seconds": str(needs.start_seconds),
        "progress_seconds": str(needs.progress_seconds),
        "startup_period": str(STARTUP_PERIOD),
        "startup_failures": str(needs.startup_failures),
        "probe_timeout": str(PROBE_SECONDS),
        "live_period": str(LIVE_PERIOD),
        "live_failures": str(LIVE_FAILURES),
        "cpus": str(needs.cpus),
        "memory": f"{needs.memory // GIB}Gi",
        "shm": f"{needs.shared_memory // GIB}Gi",
        "name": "lmi-backend",
        "replicas": "\n  replicas: 2",
        "selector": NAME_LABEL,
        "pod_labels": NAME_LABEL,
        "secret": "lmi-backend",
        "model_mount": model_mount(STORE),
        "model_volume": "\n        - name: model\n          configMap:\n            name: model",
        "cache": "emptyDir: {}",
    } | dict.fromkeys(_LEFT_OUT, "")


_LEFT_OUT: Final = (
    "labels", "annotations", "placement", "words", "variables", "least", "most", "adapters_mount",
    "adapters_volume",
)  # fmt: skip
"""What only a chart writes into the base; Kustomize patches it."""
