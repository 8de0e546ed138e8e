"""The folder that `helm install` takes for one model.

Its templates are those of the Kustomize base, with expressions of Helm's as their values.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from lmi_backend import __version__
from lmi_backend.deploy.chart_values import schema_text, values_text
from lmi_backend.deploy.extras import download_command, extra_template, pods_of
from lmi_backend.deploy.filling import (
    ADAPTERS_MOUNT,
    NAME_LABEL,
    STORE,
    TEMPLATES,
    fill,
    model_mount,
    values_of,
)
from lmi_backend.deploy.needs import LEAVE_SECONDS, STARTUP_PERIOD, STOP_SECONDS, Needs
from lmi_backend.deploy.yaml_text import yaml_text

if TYPE_CHECKING:
    from lmi_backend.deploy.served import Served

_KUBERNETES: Final = ">=1.30.0-0"
"""Which knows a preStop hook that sleeps."""
_NAME: Final = '{{ include "lmi-backend.name" . }}'
_INSTANCE: Final = "app.kubernetes.io/instance: {{ .Release.Name | quote }}"
_SELECTOR: Final = f"{NAME_LABEL}, {_INSTANCE}"
_SWITCHES: Final = {
    "monitor": ".Values.podMonitor.enabled",
    "networkpolicy": ".Values.networkPolicy.enabled",
    "keda": ".Values.keda.enabled",
    "gateway": ".Values.gateway.enabled",
    "claim": "and .Values.cache.enabled (not .Values.cache.claim) (not (lookup "
    '"v1" "PersistentVolumeClaim" .Release.Namespace (include "lmi-backend.cacheClaim" .)))',
    "job": "and .Values.cache.enabled .Values.cache.download",
}
"""Template to the condition under which its objects are made."""
_EXTRAS: Final = ("monitor", "keda", "gateway", "claim", "job")
_WORDS: Final = f"""
{{{{- if and .Values.model.path (ne .Values.model.path "{STORE}") }}}}
            - {{{{ .Values.model.path }}}}
{{{{- end }}}}"""
_ANNOTATIONS: Final = """
      annotations:
        # Pods are replaced when a file of the model changes.
        checksum/model: {{ (.Files.Glob "model/*").AsConfig | sha256sum }}"""
_PLACEMENT: Final = """
{{- with include "lmi-backend.placement" . }}
      {{- trim . | nindent 6 }}
{{- end }}"""
_SPREAD: Final = """
{{- with .Values.topology }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: {{ . | quote }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "lmi-backend.selector" $ | nindent 14 }}
{{- end }}"""
_VARIABLES: Final = """
{{- range $key, $value := .Values.environment }}
            - name: {{ $key }}
              value: {{ $value | replace "$(" "$$(" | toJson }}
{{- end }}"""
_GPUS: Final = """
{{- with .Values.gpus }}
              nvidia.com/gpu: {{ int . }}
{{- end }}"""
_DISK: Final = """
{{- if and .Values.disk (not (include "lmi-backend.cacheClaim" .)) }}
              ephemeral-storage: {{ .Values.disk | quote }}
{{- end }}"""
_CACHE: Final = """{{- with include "lmi-backend.cacheClaim" . }}
          persistentVolumeClaim:
            claimName: {{ . | quote }}
{{- else }}
          emptyDir: {}
{{- end }}"""
_MODEL_VOLUME: Final = """
        - name: model
{{- if .Values.model.claim }}
          persistentVolumeClaim:
            claimName: {{ .Values.model.claim | quote }}
{{- else }}
          configMap:
            name: model-{{ .Release.Name }}
{{- end }}"""
_ADAPTERS_VOLUME: Final = """
        - name: adapters
          persistentVolumeClaim:
            claimName: {{ .Values.lora.claim | quote }}
            readOnly: true"""
_BUCKET: Final = """
{{- range $key, $value := .Values.environment }}
{{- if hasPrefix "AWS_" $key }}
            - name: {{ $key }}
              value: {{ toJson $value }}
{{- end }}
{{- end }}"""
_HOOK: Final = """
  annotations:
    # Before the pods, which would hold GPUs meanwhile.
    helm.sh/hook: pre-install,pre-upgrade"""
_STORAGE_CLASS: Final = """
{{- with .Values.cache.storageClass }}
  storageClassName: {{ . | quote }}
{{- end }}"""
_DOWNLOAD: Final = download_command(
    "{{ toJson .Values.cache.download }}", "{{ toJson .Values.cache.revision }}"
)
_OF_EXTRAS: Final = {
    "pods": f'namespace="{{{{ .Release.Namespace }}}}",{pods_of(_NAME)}',
    "prometheus": "{{ .Values.keda.prometheus | quote }}",
    "least_replicas": "{{ int .Values.replicas }}",
    "most_replicas": "{{ int .Values.keda.mostReplicas }}",
    "waiting": "{{ .Values.keda.waiting }}",
    "kv_cache": "{{ .Values.keda.kvCache }}",
    "gateway_class": "{{ .Values.gateway.class | quote }}",
    "picker": '{{ .Values.gateway.picker | default (printf "%s-epp" '
    '(include "lmi-backend.name" .)) | quote }}',
    "claim_name": '{{ include "lmi-backend.cacheClaim" . | quote }}',
    "claim_annotations": f"""{_HOOK}
    helm.sh/hook-weight: "-1"
    # It stays when the release is removed.
    helm.sh/hook-delete-policy: hook-failed""",
    "storage_class": _STORAGE_CLASS,
    "cache_size": "{{ .Values.cache.size | quote }}",
    "job_name": "download-{{ .Release.Name }}",
    "job_annotations": f"{_HOOK}\n    helm.sh/hook-delete-policy: before-hook-creation",
    "download": _DOWNLOAD,
    "bucket": _BUCKET,
    "claim": '{{ include "lmi-backend.cacheClaim" . | quote }}',
}


def helm(served: Served) -> dict[str, str]:
    """Return a chart: path to text."""
    about = {
        "apiVersion": "v2",
        "name": served.full_name,
        "description": f"{served.title} on NVIDIA Triton with lmi-backend",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": _KUBERNETES,
    }
    files = {"Chart.yaml": yaml_text(about)}
    files |= {"values.yaml": values_text(served), "values.schema.json": schema_text()}
    files |= {f"templates/{name}": text for name, text in _templates(served.title).items()}
    return files | {f"model/{name}": text for name, text in served.texts.items()}


def _templates(title: str) -> dict[str, str]:
    values = _expressions()
    of_servers = values | {"placement": _PLACEMENT + _SPREAD}
    base = (TEMPLATES / "kubernetes").iterdir()
    texts = {path.stem: fill(path, of_servers) for path in base if path.stem != "kustomization"}
    texts |= {name: extra_template(name, values) for name in _EXTRAS}
    files = {f"{name}.yaml": _switched(name, text) for name, text in sorted(texts.items())}
    for name in ("_helpers.tpl", "configmap.yaml"):
        files[name] = (TEMPLATES / "helm" / name).read_text(encoding="utf-8")
    # A quote would end the word of the shell that it is in.
    quoted = json.dumps(title).replace("'", "'\\''")
    names = {"shown": title, "quoted": quoted}
    return files | {"NOTES.txt": fill(TEMPLATES / "helm" / "NOTES.txt", names)}


def _switched(name: str, text: str) -> str:
    condition = _SWITCHES.get(name)
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def _expressions() -> dict[str, str]:
    """Return what a chart's templates have where a manifest has values."""
    beyond = LEAVE_SECONDS + STOP_SECONDS
    of_object = '\n  labels:\n    {{- include "lmi-backend.labels" . | nindent 4 }}'
    return (
        values_of(Needs(), "{{ .Values.image | quote }}")
        | {
            "name": _NAME,
            "full_name": _NAME,
            "labels": of_object,
            "selector": _SELECTOR,
            "selector_of_one": _SELECTOR,
            "pod_labels": f"{NAME_LABEL}\n        {_INSTANCE}",
            "secret": "{{ .Values.secret | quote }}",
            "drain_seconds": "{{ int .Values.drainSeconds }}",
            "grace_seconds": f"{{{{ add (int .Values.drainSeconds) {beyond} }}}}",
            "startup_failures": f"{{{{ div (add (int .Values.startSeconds) {STARTUP_PERIOD - 1}) "
            f"{STARTUP_PERIOD} }}}}",
            "progress_seconds": f"{{{{ add (int .Values.drainSeconds) (int .Values.startSeconds) "
            f"{beyond} }}}}",
            "cpus": "{{ .Values.cpus }}",
            "memory": "{{ .Values.memory | quote }}",
            "shm": "{{ .Values.sharedMemory | quote }}",
            "cache": _CACHE,
            "words": _WORDS,
            "replicas": _block(
                "if not .Values.keda.enabled", "\n  replicas: {{ int .Values.replicas }}"
            ),
            "annotations": _ANNOTATIONS,
            "placement": _PLACEMENT,
            "variables": _VARIABLES,
            "least": _GPUS + _DISK,
            "most": _GPUS,
            "model_mount": _block("with .Values.model.path", model_mount("{{ . }}")),
            "model_volume": _block("if .Values.model.path", _MODEL_VOLUME),
            "adapters_mount": _block("if .Values.lora.enabled", ADAPTERS_MOUNT),
            "adapters_volume": _block("if .Values.lora.enabled", _ADAPTERS_VOLUME),
        }
        | _OF_EXTRAS
    )


def _block(condition: str, text: str) -> str:
    """Return lines that are there under a condition."""
    return f"\n{{{{- {condition} }}}}{text}\n{{{{- end }}}}"
