"""The values of a chart: each with what it does, where it comes from, and its schema."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from lmi_backend.deploy.extras import (
    GATEWAY_CLASS,
    KV_CACHE,
    PROMETHEUS,
    WAITING,
    cache_size,
    most_replicas,
)
from lmi_backend.deploy.yaml_text import Value, yaml_text
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.deploy.served import Served

Schema = dict[str, Value]
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_SECONDS: Final[Schema] = {"type": "integer", "minimum": 1}
_SWITCH: Final[Schema] = {"type": "boolean"}
_TEXT: Final[Schema] = {"type": "string"}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}
_NAME: Final[Schema] = {
    "type": "string",
    "maxLength": 253,
    "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
}
_NAME_OR_NONE: Final[Schema] = {**_NAME, "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
_SIZE: Final[Schema] = {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"}
_SIZE_OR_NONE: Final[Schema] = {**_SIZE, "pattern": "^([0-9]+([.][0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?)?$"}
_CPUS: Final[Schema] = {
    "type": ["number", "string"],
    "pattern": "^[0-9]+([.][0-9]+)?m?$",
    "exclusiveMinimum": 0,
}
_SHARE: Final[Schema] = {
    "type": ["number", "string"],
    "pattern": "^(0?[.][0-9]+|1)$",
    "exclusiveMinimum": 0,
    "maximum": 1,
}
_TEXTS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_VARIABLES: Final[Schema] = {**_TEXTS, "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_.-]*$"}}


@dataclass(frozen=True)
class Row:
    """One value."""

    name: str
    """As Helm's --set has it: GROUP.NAME, or NAME."""
    schema: Schema
    what: str
    """What it does."""
    of: Callable[[Served], Value]
    """Its value for a model."""


def _disk(served: Served) -> Value:
    is_downloaded = served.remote_model and served.needs.storage
    return f"{served.needs.storage // GIB}Gi" if is_downloaded else ""


def _has(extra: str) -> Callable[[Served], Value]:
    return lambda served: extra in served.placement.extras


def _tolerations(served: Served) -> Value:
    return served.placement.of_pod({}, is_spread=False).get("tolerations", [])


ROWS: Final = (
    Row("replicas", _COUNT, "Pods. With keda.enabled: the fewest.", lambda s: s.replicas),
    Row(
        "image",
        {"type": "string", "pattern": r"^[\w./:@-]+$"},
        "Image of the server, with its engine.",
        lambda s: s.image,
    ),
    Row("imagePullSecrets", _OBJECTS, "Secrets of the image's registry.", lambda _: []),
    Row(
        "secret",
        _NAME,
        "Optional Secret: `api-key` for clients, `hugging-face-token` for the Hub.",
        lambda _: "lmi-backend",
    ),
    Row(
        "model.path",
        {"type": "string", "pattern": r"^(/opt/ml/model(/[\w.-]+)?)?$"},
        "Folder of the model in the container; its last part is the model's name. Empty: the "
        "environment alone says what is served.",
        lambda s: s.place,
    ),
    Row(
        "model.claim",
        _NAME_OR_NONE,
        "A PersistentVolumeClaim that holds that folder. Empty: a ConfigMap has the files of "
        "model/ in this chart.",
        lambda s: s.claim,
    ),
    Row(
        "environment",
        _VARIABLES,
        "Environment variables of the server. The plan was made with these.",
        lambda s: dict(s.variables),
    ),
    Row("gpus", _COUNT, "GPUs of a pod, as planned.", lambda s: s.needs.devices),
    Row("cpus", _CPUS, "CPUs that a pod requests.", lambda s: s.needs.cpus),
    Row(
        "memory",
        _SIZE,
        "Host memory of a pod, /dev/shm included: its request and its limit.",
        lambda s: f"{s.needs.memory // GIB}Gi",
    ),
    Row(
        "sharedMemory",
        _SIZE,
        "Size of /dev/shm.",
        lambda s: f"{s.needs.shared_memory // GIB}Gi",
    ),
    Row(
        "disk",
        _SIZE_OR_NONE,
        "Disk that a pod requests (ephemeral-storage) for a model that it downloads. Not used "
        "with a claim for downloads. Empty: none.",
        _disk,
    ),
    Row(
        "startSeconds",
        _SECONDS,
        "Until a pod that does not serve yet is restarted: the time to load its model "
        "(option.model_loading_timeout), after a slow download of it.",
        lambda s: s.needs.start_seconds,
    ),
    Row(
        "drainSeconds",
        _SECONDS,
        "How long running requests may take when a pod stops (option.predict_timeout). The grace "
        "period follows from it.",
        lambda s: s.needs.request_seconds,
    ),
    Row(
        "serviceAccount",
        _NAME_OR_NONE,
        "Service account of the pods, for a role that reads S3.",
        lambda s: s.placement.service_account,
    ),
    Row(
        "nodeSelector",
        _TEXTS,
        "Labels of the nodes that pods run on.",
        lambda s: dict(s.placement.node_selector),
    ),
    Row("tolerations", _OBJECTS, "Taints that the pods tolerate.", _tolerations),
    Row(
        "topology",
        _TEXT,
        "Label of nodes to spread the pods over, as topology.kubernetes.io/zone.",
        lambda s: s.placement.topology,
    ),
    Row(
        "podMonitor.enabled",
        _SWITCH,
        "Make a PodMonitor for /metrics. Needs the Prometheus operator.",
        _has("monitor"),
    ),
    Row(
        "networkPolicy.enabled",
        _SWITCH,
        "Let connections into the pods reach only the port of the front end.",
        lambda _: True,
    ),
    Row(
        "keda.enabled",
        _SWITCH,
        "Scale by waiting requests and the KV cache. Needs KEDA and Prometheus.",
        _has("keda"),
    ),
    Row(
        "keda.prometheus",
        {"type": "string", "pattern": '^https?://[^\\s"]+$'},
        "URL of the Prometheus that scrapes the pods.",
        lambda _: PROMETHEUS,
    ),
    Row("keda.mostReplicas", _SECONDS, "The most pods.", most_replicas),
    Row(
        "keda.waiting",
        {"type": "integer", "minimum": 1},
        "Waiting requests of a pod from which on another starts.",
        lambda _: int(WAITING),
    ),
    Row(
        "keda.kvCache",
        _SHARE,
        "Share of the KV cache in use from which on another pod starts.",
        lambda _: KV_CACHE,
    ),
    Row(
        "gateway.enabled",
        _SWITCH,
        "Make a Gateway, an HTTPRoute and an InferencePool. Needs the Gateway API and its "
        "inference extension.",
        _has("gateway"),
    ),
    Row("gateway.class", _NAME, "The gatewayClassName of your gateway.", lambda _: GATEWAY_CLASS),
    Row(
        "gateway.picker",
        _NAME_OR_NONE,
        "Service of the endpoint picker. Empty: lmi-backend-RELEASE-epp.",
        lambda _: "",
    ),
    Row("lora.enabled", _SWITCH, "Mount LoRA adapters at /adapters.", _has("lora")),
    Row("lora.claim", _NAME, "The claim that holds them.", lambda _: "adapters"),
    Row(
        "cache.enabled",
        _SWITCH,
        "Download the model before pods start, into a claim that they share.",
        _has("cache"),
    ),
    Row(
        "cache.claim",
        _NAME_OR_NONE,
        "A claim that is there, for downloads and compiled kernels; it is used without "
        "cache.enabled too. Empty, with cache.enabled: the claim cache-RELEASE is made.",
        lambda s: s.placement.cache_claim,
    ),
    Row("cache.size", _SIZE, "Size of the claim that is made.", cache_size),
    Row(
        "cache.storageClass",
        _NAME_OR_NONE,
        "Its storage class, a shared file system. Empty: the default of the cluster.",
        lambda _: "",
    ),
    Row(
        "cache.download",
        _TEXT,
        "What is downloaded: a model of the Hub or an s3:// prefix. Empty: nothing.",
        lambda s: s.remote_model,
    ),
    Row("cache.revision", _TEXT, "Revision of the Hub's model.", lambda s: s.revision),
)


def values_text(served: Served) -> str:
    """Return values.yaml for a model."""
    head = f"# Made by `lmi-backend deploy --to helm` from the plan of {served.title}.\n"
    return head + "".join(_group_text(group, list(rows), served) for group, rows in _groups())


def schema_text() -> str:
    """Return values.schema.json, which refuses unknown names and wrong values."""
    fields: dict[str, Value] = {}
    for group, rows in _groups():
        inner: dict[str, Value] = {
            row.name.rpartition(".")[2]: {"description": row.what, **row.schema} for row in rows
        }
        fields |= {group: _object(inner)} if group else inner
    whole = _object(fields)
    # What a chart of charts gives to all.
    whole["properties"] = fields | {"global": {"type": "object"}}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **whole}
    return json.dumps(schema, indent=2) + "\n"


def _groups() -> list[tuple[str, list[Row]]]:
    found = groupby(ROWS, key=lambda row: row.name.rpartition(".")[0])
    return [(group, list(rows)) for group, rows in found]


def _object(fields: Mapping[str, Value]) -> dict[str, Value]:
    """Return the schema of an object that has these fields and no others; null removes one."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(fields),
        "properties": fields,
    }


def _group_text(group: str, rows: list[Row], served: Served) -> str:
    texts = []
    for row in rows:
        comment = textwrap.wrap(row.what, 94, initial_indent="# ", subsequent_indent="# ")
        field = yaml_text({row.name.rpartition(".")[2]: row.of(served)})
        texts.append("\n".join([*comment, field]))
    if not group:
        return "".join(f"\n{text}" for text in texts)
    return f"\n{group}:\n" + textwrap.indent("\n".join(texts), "  ")
