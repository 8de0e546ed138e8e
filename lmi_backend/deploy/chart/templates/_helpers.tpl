{{/* Names and labels. Two releases of a namespace share none of them. A Service's name has no dots. KEDA finds
pods by the name of their Deployment, of which a pod's name has no more than 52 characters. */}}
{{- define "lmi-backend.name" -}}
{{ printf "lmi-backend-%s" .Release.Name | replace "." "-" | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "lmi-backend.selector" -}}
app.kubernetes.io/name: lmi-backend
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "lmi-backend.labels" -}}
{{ include "lmi-backend.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The claim for downloads; empty if they go with the pod. */}}
{{- define "lmi-backend.cacheClaim" -}}
{{ .Values.cache.claim | default (ternary (printf "cache-%s" .Release.Name) "" .Values.cache.enabled) }}
{{- end }}

{{/* Where a pod runs, and as whom. */}}
{{- define "lmi-backend.placement" -}}
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . | quote }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
