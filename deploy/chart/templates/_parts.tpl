{{/* A plain manifest, in the namespace of the release. */}}
{{- define "elastic.manifest" -}}
{{- $text := .text | replace "namespace: elastic-queue" (printf "namespace: %s" .namespace)
  | replace "[kube-system, elastic-queue]" (printf "[kube-system, %s]" .namespace) }}
{{- regexReplaceAll "(?m)^( *)- elastic-queue$" $text (printf "${1}- %s" .namespace) }}
{{ end }}

{{/* All manifests of a folder, but for the namespace, which is the release's. */}}
{{- define "elastic.folder" -}}
{{- $root := .root }}
{{- range $path, $_ := $root.Files.Glob (printf "manifests/%s/*.yaml" .folder) }}
{{- if ne (base $path) "namespace.yaml" }}
---
{{ include "elastic.manifest" (dict "text" ($root.Files.Get $path) "namespace" $root.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "elastic.image" -}}
{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* What every pod of ours is like: no rights, no writable files. */}}
{{- define "elastic.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "elastic.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Spread replicas over nodes. */}}
{{- define "elastic.spread" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app: {{ . }}
{{- end }}
