"""The arguments of `deploy` that only Kubernetes has, with Kustomize or Helm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.placement import EXTRAS, Placement, Toleration
from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import printable, say

if TYPE_CHECKING:
    import argparse

OF_PODS: Final = ("kubernetes", "helm")
"""Targets that make pods."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""Of an object in Kubernetes."""
_LABEL: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,251}/)?[\w][-\w.]{0,62}", re.ASCII)
_VALUE: Final = re.compile(r"[-\w.]{0,63}", re.ASCII)
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_OF_KUBERNETES: Final = (
    "with_", "namespace", "cache_claim", "service_account", "node_selector", "toleration",
    "topology",
)  # fmt: skip


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; `placement_of` reads them."""
    group = parser.add_argument_group("Kubernetes")
    extras = "; ".join(f"{word}: {what}" for word, what in EXTRAS.items())
    group.add_argument(
        "--with", dest="with_", default="", metavar="WORD,…", help=f"what else to write. {extras}"
    )
    for name, what in (
        ("namespace", "namespace of the objects"),
        ("cache-claim", "a PersistentVolumeClaim that keeps downloads and compiled kernels"),
        ("service-account", "service account of the pods, for a role that reads S3"),
        ("topology", "label of nodes to spread the pods over, as topology.kubernetes.io/zone"),
    ):
        group.add_argument(f"--{name}", default="", metavar="NAME", help=what)
    group.add_argument(
        "--node-selector",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="run on nodes with this label; may be repeated",
    )
    group.add_argument(
        "--toleration",
        action="append",
        default=[],
        metavar="KEY[=VALUE][:EFFECT]",
        help="run on nodes with this taint, as nvidia.com/gpu:NoSchedule; may be repeated",
    )


def placement_of(arguments: argparse.Namespace) -> Placement:
    """Return what the arguments say.

    Raises:
        ConfigurationError: one of them cannot be used, or not with this target.
    """
    given = [name for name in _OF_KUBERNETES if getattr(arguments, name)]
    if given and arguments.to not in OF_PODS:
        option = given[0].strip("_").replace("_", "-")
        raise ConfigurationError(f"--{option}: needs --to {' or '.join(OF_PODS)}")
    if arguments.namespace and arguments.to == "helm":
        raise ConfigurationError("--namespace: needs --to kubernetes; helm install has its own")
    extras = frozenset(filter(None, arguments.with_.split(",")))
    if unknown := sorted(extras - EXTRAS.keys()):
        message = f"--with {printable(unknown[0])}; accepted: {', '.join(EXTRAS)}"
        raise ConfigurationError(message)
    if "cache" in extras and arguments.cache_claim:
        raise ConfigurationError("--cache-claim and --with cache; accepted: one of them")
    if "keda" in extras and arguments.to == "kubernetes" and not arguments.namespace:
        say("keda counts pods of this name in every namespace; name one with --namespace")
    if "keda" in extras and "monitor" not in extras:
        say("keda reads a Prometheus that scrapes the pods; --with monitor,keda has it do so")
    return Placement(
        extras=extras,
        namespace=_name("--namespace", arguments.namespace),
        cache_claim=_name("--cache-claim", arguments.cache_claim),
        service_account=_name("--service-account", arguments.service_account),
        node_selector=dict(_label(each) for each in arguments.node_selector),
        tolerations=tuple(_toleration(each) for each in arguments.toleration),
        topology=checked("--topology", arguments.topology, _LABEL, "a label of nodes"),
    )


def checked(option: str, value: str, form: re.Pattern[str], what: str) -> str:
    """Return the value of an option; raise ConfigurationError if it does not match."""
    if value and not form.fullmatch(value):
        raise ConfigurationError(f"{option} {printable(value)}; accepted: {what}")
    return value


def _name(option: str, value: str) -> str:
    return checked(option, value, NAME, "a name of Kubernetes")


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
        message = f"--node-selector {printable(text)}; accepted: LABEL=VALUE"
        raise ConfigurationError(message)
    return key, value


def _toleration(text: str) -> Toleration:
    head, _, effect = text.partition(":")
    key, _, value = head.partition("=")
    if not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value) or effect not in _EFFECTS:
        effects = ", ".join(_EFFECTS[1:])
        message = f"--toleration {printable(text)}; accepted: KEY[=VALUE][:EFFECT] with {effects}"
        raise ConfigurationError(message)
    return Toleration(key, value, effect)
