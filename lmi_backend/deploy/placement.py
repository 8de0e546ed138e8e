"""Where the pods of a model run, and what stands next to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.deploy.yaml_text import Value

EXTRAS: Final = {
    "monitor": "a PodMonitor of the Prometheus operator",
    "keda": "a ScaledObject that scales by waiting requests and the KV cache",
    "gateway": "a Gateway, an HTTPRoute and an InferencePool with an endpoint picker",
    "lora": "the claim `adapters`, mounted at /adapters",
    "cache": "a claim for downloads, and a Job in download/ that fills it first",
}
"""Name in --with to what it adds."""


@dataclass(frozen=True)
class Toleration:
    """A taint that the pods tolerate."""

    key: str
    value: str = ""
    effect: str = ""

    @property
    def fields(self) -> dict[str, Value]:
        """Its fields in a pod's spec."""
        made: dict[str, Value] = {"key": self.key}
        made["operator"] = "Equal" if self.value else "Exists"
        if self.value:
            made["value"] = self.value
        if self.effect:
            made["effect"] = self.effect
        return made


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What an operator says about the pods."""

    extras: frozenset[str] = frozenset()
    """Names in EXTRAS."""
    namespace: str = ""
    cache_claim: str = ""
    """A PersistentVolumeClaim for downloads and compiled kernels."""
    service_account: str = ""
    """By which a cloud gives the pods a role."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    """Label of nodes over whose values the pods are spread."""

    def of_pod(self, labels: Mapping[str, Value], *, is_spread: bool = True) -> dict[str, Value]:
        """Return the fields of a pod's spec; `labels` are those of the pods."""
        fields: dict[str, Value] = {}
        if self.service_account:
            fields["serviceAccountName"] = self.service_account
        if self.node_selector:
            fields["nodeSelector"] = dict(self.node_selector)
        if self.tolerations:
            fields["tolerations"] = [each.fields for each in self.tolerations]
        if self.topology and is_spread:
            spread: dict[str, Value] = {
                "maxSkew": 1,
                "topologyKey": self.topology,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(labels)},
            }
            fields["topologySpreadConstraints"] = [spread]
        return fields
