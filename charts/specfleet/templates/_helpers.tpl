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
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch{{ if .Values.podPatch.enabled }}, patch{{ end }}]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
