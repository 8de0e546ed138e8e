"""A model and how it is to be run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.needs import UNKNOWN_STORAGE
from lmi_backend.deploy.placement import Placement
from lmi_backend.printable import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmi_backend.deploy.needs import Needs
    from lmi_backend.deploy.yaml_text import Value

_MOST_REPLICAS: Final = 8


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model and how it is to be run."""

    name: str
    """Of the model, in letters that Kubernetes takes."""
    title: str
    """The model's own name, under which it is served."""
    image: str
    needs: Needs
    folder: Path | None
    """Its LMI folder on this machine; None if variables say everything."""
    mount: str = ""
    """That folder as the files name it: from where they are, if it is near."""
    place: str = ""
    """That folder inside a container; empty if there is none."""
    words: tuple[str, ...] = ()
    """After `serve`: the folder, unless a variable names it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the plan was made with."""
    replicas: int = 2
    """Servers."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Name and content of the files of that folder, where a ConfigMap takes them."""
    claim: str = ""
    """A PersistentVolumeClaim that holds the folder, in place of a ConfigMap."""
    placement: Placement = field(default_factory=Placement)
    remote_model: str = ""
    """A hub id or an s3:// prefix, if the server downloads the model."""
    revision: str = ""
    """Of the hub's model."""

    @property
    def full_name(self) -> str:
        """The name of its objects, with Kustomize's suffix."""
        return f"lmi-backend-{self.name}"

    @property
    def labels(self) -> dict[str, Value]:
        return {
            "app.kubernetes.io/name": "lmi-backend",
            "app.kubernetes.io/instance": self.name,
        }

    @property
    def cache_claim(self) -> str:
        """The claim for its downloads; empty if they go with the pod."""
        own = f"cache-{self.name}" if "cache" in self.placement.extras else ""
        return self.placement.cache_claim or own

    @property
    def cache_size(self) -> str:
        """The size of a claim for its downloads."""
        return f"{(self.needs.storage or UNKNOWN_STORAGE) // GIB}Gi"

    @property
    def most_replicas(self) -> int:
        """How many pods KEDA may start."""
        return max(_MOST_REPLICAS, self.replicas)
