{{- define "specfleet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "specfleet.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "specfleet.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "specfleet.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Cluster-scoped names carry the namespace, so that two releases of one name do not collide. */ -}}
{{- define "specfleet.clusterName" -}}
{{- if eq (include "specfleet.fullname" .) .Release.Namespace -}}
{{- include "specfleet.fullname" . -}}
{{- else -}}
{{- printf "%s-%s" .Release.Namespace (include "specfleet.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "specfleet.selectorLabels" -}}
app.kubernetes.io/name: {{ include "specfleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "specfleet.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "specfleet.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "specfleet.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "specfleet.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false: write the name of an existing account in serviceAccount.name" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* A reference of {repository, tag, digest}; the digest wins. Takes (dict "image" IMAGE "tag" DEFAULT). */ -}}
{{- define "specfleet.imageReference" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "specfleet.operatorImage" -}}
{{- include "specfleet.imageReference" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "specfleet.routerImage" -}}
{{- include "specfleet.imageReference" (dict "image" .Values.routerImage "tag" "") -}}
{{- end -}}

{{- /* Fails where the ways to prove who asks Prometheus contradict each other. */ -}}
{{- define "specfleet.prometheusChecked" -}}
{{- $ways := list }}
{{- if .bearerToken.secret }}{{- $ways = append $ways "bearerToken.secret" }}{{- end }}
{{- if .basicAuth.secret }}{{- $ways = append $ways "basicAuth.secret" }}{{- end }}
{{- if .serviceAccountToken }}{{- $ways = append $ways "serviceAccountToken" }}{{- end }}
{{- if gt (len $ways) 1 }}
{{- fail (printf "prometheus: %s exclude each other: write one of them" (join " and " $ways)) }}
{{- end }}
{{- if and (or $ways .ca.configMap) (not .url) }}
{{- fail (printf "prometheus: %s is for the server at prometheus.url: write that too" (first (append $ways "ca.configMap"))) }}
{{- end }}
{{- end -}}

{{- /* Sources of the volume with what Prometheus asks for; empty where it asks for nothing. */ -}}
{{- define "specfleet.prometheusFiles" -}}
{{- with .Values.prometheus.bearerToken }}
{{- if .secret }}
- secret:
    name: {{ .secret }}
    items: [{key: {{ .key }}, path: token}]
{{- end }}
{{- end }}
{{- with .Values.prometheus.basicAuth }}
{{- if .secret }}
- secret:
    name: {{ .secret }}
    items: [{key: {{ .usernameKey }}, path: username}, {key: {{ .passwordKey }}, path: password}]
{{- end }}
{{- end }}
{{- with .Values.prometheus.ca }}
{{- if .configMap }}
- configMap:
    name: {{ .configMap }}
    items: [{key: {{ .key }}, path: ca.crt}]
{{- end }}
{{- end }}
{{- end -}}

{{- /* What the operator may do to SpecDeployments and to the objects it owns, in the whole cluster or in one namespace. */ -}}
{{- define "specfleet.rules" -}}
- apiGroups: [specfleet.dev]
  resources: [specdeployments]
  verbs: [get, list, watch]
- apiGroups: [specfleet.dev]
  resources: [specdeployments/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch{{ if .Values.podPatch.enabled }}, patch{{ end }}]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
