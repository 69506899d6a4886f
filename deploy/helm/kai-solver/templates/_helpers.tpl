{{/* Name of everything in the release. */}}
{{- define "kai-solver.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "kai-solver" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-kai-solver" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of cluster-wide objects: two releases of one name in two namespaces must not collide. */}}
{{- define "kai-solver.clusterName" -}}
{{- if eq .Release.Namespace (include "kai-solver.fullname" .) -}}
{{- include "kai-solver.fullname" . -}}
{{- else -}}
{{- printf "%s-%s" .Release.Namespace (include "kai-solver.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kai-solver.serviceAccountName" -}}
{{- default (include "kai-solver.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "kai-solver.selectorLabels" -}}
app.kubernetes.io/name: kai-solver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kai-solver.labels" -}}
{{ include "kai-solver.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kai-solver
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "kai-solver.image" -}}
{{- $why := "image.repository is required. No image is published: build one with `make image`, push it to your registry, and name it: --set image.repository=REGISTRY/kai-solver" -}}
{{- $repository := required $why .Values.image.repository -}}
{{- $at := ternary (printf "@%s" .Values.image.digest) (printf ":%s" (default .Chart.AppVersion .Values.image.tag)) (ne .Values.image.digest "") -}}
{{- printf "%s%s" $repository $at -}}
{{- end -}}

{{/* Name of a shard: the release's, and its node pool's. Call with a dict of root and shard. */}}
{{- define "kai-solver.shardName" -}}
{{- if .shard.nodePool -}}
{{- printf "%s-%s" (include "kai-solver.fullname" .root) (.shard.nodePool | lower | replace "_" "-" | replace "." "-") | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- include "kai-solver.fullname" .root -}}
{{- end -}}
{{- end -}}

{{/* The settings file of a shard, as YAML: the chart's, the shard's own over them, and what the release itself says. */}}
{{- define "kai-solver.settings" -}}
{{- $name := printf "%s-admission" (include "kai-solver.fullname" .root) -}}
{{- $configuration := printf "%s-admission" (include "kai-solver.clusterName" .root) -}}
{{- $admission := dict "service" $name "secret" $name "configuration" $configuration -}}
{{- $own := dict "node_pool" .shard.nodePool "namespace" .root.Release.Namespace "admission" $admission -}}
{{- $over := .shard.settings | default dict | deepCopy -}}
{{- mergeOverwrite (deepCopy .root.Values.settings) $over $own | toYaml -}}
{{- end -}}

{{/* Names of Leases that KAI's own scheduler would hold for the same pods: they are looked for. */}}
{{- define "kai-solver.kaiLeases" -}}
{{- range .Values.shards -}}
{{- $name := (.settings | default dict).scheduler_name | default $.Values.settings.scheduler_name -}}
- {{ ternary $name (printf "%s-%s" $name .nodePool) (empty .nodePool) | quote }}
{{ end -}}
{{- end -}}

{{/* Secrets with the keys of all shards, for a list in quotes: the files of rules are YAML before they are rendered, too. */}}
{{- define "kai-solver.signingSecrets" -}}
{{- $found := list -}}
{{- range .Values.shards -}}
{{- $found = append $found ((.settings | default dict).signing_secret | default $.Values.settings.signing_secret) -}}
{{- end -}}
{{- $found | uniq | join "', '" -}}
{{- end -}}

{{/* Not empty if any shard may change something; empty if all shards observe only (dry_run). */}}
{{- define "kai-solver.acts" -}}
{{- range .Values.shards -}}
{{- $stated := .settings | default dict -}}
{{- if not (ternary $stated.dry_run $.Values.settings.dry_run (hasKey $stated "dry_run")) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether any shard groups pods itself, and so needs their owners. */}}
{{- define "kai-solver.groups" -}}
{{- range .Values.shards -}}
{{- $stated := mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict) -}}
{{- if eq $stated.grouping "own" -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether any shard binds pods itself. */}}
{{- define "kai-solver.binds" -}}
{{- range .Values.shards -}}
{{- $stated := mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict) -}}
{{- if and (not $stated.dry_run) (eq $stated.binding "own") -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether any shard shares GPUs itself. */}}
{{- define "kai-solver.shares" -}}
{{- if include "kai-solver.reservationAccounts" . | fromJsonArray -}}yes{{- end -}}
{{- end -}}

{{/* Service accounts of the reservation pods of all shards that share GPUs themselves, as a list in JSON. */}}
{{- define "kai-solver.reservationAccounts" -}}
{{- $found := list -}}
{{- range .Values.shards -}}
{{- $stated := mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict | deepCopy) -}}
{{- if and (not $stated.dry_run) (eq $stated.binding "own") $stated.sharing.image -}}
{{- $found = append $found $stated.sharing.service_account -}}
{{- end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end -}}

{{/* Whether any shard leaves that to KAI's binder. */}}
{{- define "kai-solver.requests" -}}
{{- range .Values.shards -}}
{{- $stated := mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict) -}}
{{- if and (not $stated.dry_run) (eq $stated.binding "bindrequest") -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether any shard asks the API server which callers may read its answers or metrics. */}}
{{- define "kai-solver.guards" -}}
{{- range .Values.shards -}}
{{- $stated := mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict) -}}
{{- if or $stated.answers_bind_address $stated.metrics_authorization -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kai-solver.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{/* Dashboards and alerts name metrics by their default prefix. Call with a dict of root and text. */}}
{{- define "kai-solver.prefixed" -}}
{{- regexReplaceAll "\\bkai_" .text (printf "%s_" .root.Values.settings.metrics_namespace) -}}
{{- end -}}

{{/* Whether a shard serves the admission webhook. Call with its settings, merged. */}}
{{- define "kai-solver.serves" -}}
{{- if and .admission.enabled (not .dry_run) -}}yes{{- end -}}
{{- end -}}

{{/* Whether any shard serves the admission webhook. */}}
{{- define "kai-solver.admits" -}}
{{- range .Values.shards -}}
{{- include "kai-solver.serves" (mergeOverwrite (deepCopy $.Values.settings) (.settings | default dict | deepCopy)) -}}
{{- end -}}
{{- end -}}

{{/* Label of the pods that serve it: others would refuse the connections of the API server. */}}
{{- define "kai-solver.admissionLabel" -}}
kai-solver/serves-admission: "true"
{{- end -}}

{{/* Names of our schedulers, as a list in CEL. */}}
{{- define "kai-solver.schedulerNames" -}}
{{- $names := list -}}
{{- range .Values.shards -}}
{{- $names = append $names (squote ((.settings | default dict).scheduler_name | default $.Values.settings.scheduler_name)) -}}
{{- end -}}
{{- $names | uniq | join ", " -}}
{{- end -}}

{{/* Whether an object does not exist, or is this release's. Call with a dict of root and found. */}}
{{- define "kai-solver.mayOwn" -}}
{{- $notes := dig "metadata" "annotations" dict .found -}}
{{- $owner := printf "%s/%s" (get $notes "meta.helm.sh/release-namespace") (get $notes "meta.helm.sh/release-name") -}}
{{- if or (not .found) (eq $owner (printf "%s/%s" .root.Release.Namespace .root.Release.Name)) -}}yes{{- end -}}
{{- end -}}

{{/* Whether to create objects that may exist: always, never, or (null) where helm can look and something is scheduled. Call
with a dict of root and create. `helm template` has no cluster to look at, and would claim the objects of others. */}}
{{- define "kai-solver.creates" -}}
{{- if kindIs "invalid" .create -}}
{{- if and (include "kai-solver.acts" .root) (lookup "v1" "Namespace" "" "kube-system") -}}yes{{- end -}}
{{- else if .create -}}yes{{- end -}}
{{- end -}}

{{/* Annotations of objects that stay when the release goes: for helm, and for Argo CD. */}}
{{- define "kai-solver.stays" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
{{- end -}}
