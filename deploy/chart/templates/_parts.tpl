{{/* A plain manifest, in the namespace of the release. */}}
{{- define "elastic.manifest" -}}
{{- $text := .text | replace "namespace: elastic-queue" (printf "namespace: %s" .namespace)
  | replace "[kube-system, elastic-queue]" (printf "[kube-system, %s]" .namespace)
  | replace "elastic-queue:elastic-gpu-scheduler']" (printf "elastic-queue:elastic-gpu-scheduler'%s]" (include "elastic.users" .users))
  | replace "system:serviceaccount:elastic-queue:" (printf "system:serviceaccount:%s:" .namespace) }}
{{- if .certManager }}
{{- /* cert-manager writes the CA where the program would. */}}
{{- $text = regexReplaceAll "\\n  labels:\\n    elasticai.io/webhooks-of: (\\S+)" $text (printf "\n  annotations:\n    cert-manager.io/inject-ca-from: %s/${1}\n  labels:\n    elasticai.io/webhooks-of: ${1}" .namespace) }}
{{- end }}
{{- regexReplaceAll "(?m)^( *)- elastic-queue$" $text (printf "${1}- %s" .namespace) }}
{{ end }}

{{- define "elastic.users" -}}
{{- range . }}, '{{ . }}'{{ end }}
{{- end }}

{{/* All manifests of a folder, but for the namespace, which is the release's. */}}
{{- define "elastic.folder" -}}
{{- $root := .root }}
{{- range $path, $_ := $root.Files.Glob (printf "manifests/%s/*.yaml" .folder) }}
{{- $text := $root.Files.Get $path }}
{{- if eq $path "manifests/queue/jobs.yaml" }}
{{- $text = include "elastic.jobs" (dict "text" $text "configuration" $root.Values.queue.configuration) }}
{{- end }}
{{- if ne (base $path) "namespace.yaml" }}
---
{{ include "elastic.manifest" (dict "text" $text "namespace" $root.Release.Namespace "certManager" $root.Values.certManager.enabled "users" $root.Values.gpuScheduler.users) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The webhooks of jobs as elastic-queue would set them by its configuration, so that the two do not undo each other. */}}
{{- define "elastic.jobs" -}}
{{- $text := .text }}
{{- with .configuration.managedJobsNamespaceSelector }}
{{- $more := "" }}
{{- with .matchExpressions }}{{ $more = toYaml . | nindent 4 }}{{ end }}
{{- with .matchLabels }}{{ $more = printf "%s%s" $more (toYaml (dict "matchLabels" .) | nindent 4) }}{{ end }}
{{- $text = regexReplaceAll "(?m)^      - elastic-queue$" $text (printf "      - elastic-queue%s" $more) }}
{{- end }}
{{- $frameworks := dig "integrations" "frameworks" list .configuration }}
{{- if and .configuration.manageJobsWithoutQueueName (has "pod" $frameworks) }}
{{- $text = regexReplaceAll `(?s)  matchConditions:\n  - expression: has\(object\.metadata\.labels\).*?name: names-a-queue\n` $text "" }}
{{- end }}
{{- $text }}
{{- end }}

{{/* The certificate of a program's webhooks, where cert-manager makes it. */}}
{{- define "elastic.certificate" -}}
{{- if .root.Values.certManager.enabled }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  secretName: {{ .name }}
  dnsNames:
  {{- toYaml .names | nindent 2 }}
  issuerRef:
    {{- toYaml (.root.Values.certManager.issuerRef | default (dict "kind" "Issuer" "name" .name)) | nindent 4 }}
{{- if not .root.Values.certManager.issuerRef }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  selfSigned: {}
{{- end }}
{{- end }}
{{- end }}

{{/* What a program is told of its certificate. */}}
{{- define "elastic.webhook" -}}
dnsNames:
{{- toYaml .names | nindent 0 }}
{{- if .root.Values.certManager.enabled }}
manageCertificate: false
certDir: /etc/elastic-certificate
{{- end }}
{{- end }}

{{- define "elastic.certificate.mount" -}}
{{- if .Values.certManager.enabled }}
- name: certificate
  mountPath: /etc/elastic-certificate
  readOnly: true
{{- end }}
{{- end }}

{{- define "elastic.certificate.volume" -}}
{{- if .root.Values.certManager.enabled }}
- name: certificate
  secret:
    secretName: {{ .name }}
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

{{/* A drain takes one replica at a time. */}}
{{- define "elastic.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      app: {{ .name }}
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
