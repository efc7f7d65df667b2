{{/* Names and what all pods have in common. Each takes a dict with "root", and where it matters "part". */}}

{{- define "node.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "node.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .part }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "node.labels" -}}
{{ include "node.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Seconds that a worker has from SIGTERM on: see workers.drainSeconds; half a minute more while the database is away. */}}
{{- define "node.stopSeconds" -}}
{{ add .Values.workers.leaveSeconds (ceil (mulf 2.4 .Values.workers.drainSeconds)) 30 }}
{{- end }}

{{/* Of a pod's specification, what stands beside its containers. */}}
{{- define "node.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "node.selector" . | nindent 8 }}
volumes:
  - name: data
    emptyDir: {}
  - name: tmp
    emptyDir: {}
{{- with .root.Values.record.existingClaim }}
  - name: record
    persistentVolumeClaim: {claimName: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Of a container, all but its name, command, ports, probes and resources. */}}
{{- define "node.container" -}}
{{- $values := .root.Values -}}
image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}{{ if eq .part "tasks" }}{{ $values.image.reportsSuffix }}{{ end }}"
imagePullPolicy: {{ $values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /var/lib/messaging-node}
  - {name: tmp, mountPath: /tmp}
{{- if $values.record.existingClaim }}
  - {name: record, mountPath: /var/lib/messaging-node/record}
{{- end }}
workingDir: /var/lib/messaging-node
{{- with $values.moreSecrets }}
envFrom:
{{- range . }}
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}
env:
  - {name: NODE_MODE, value: production}
  - {name: HOST, value: "0.0.0.0"}
  - {name: PORT, value: "8000"}
  - {name: DATA_DIR, value: /var/lib/messaging-node}
  - {name: DOMAIN, value: {{ required "domain is required: the domain that the node serves" $values.domain | quote }}}
  - {name: ALLOWED_HOSTS, value: {{ $values.settings.ALLOWED_HOSTS | default $values.domain | quote }}}
  - {name: PUBLIC_URL, value: {{ $values.publicUrl | default (printf "https://%s" $values.domain) | quote }}}
  - {name: DRAIN_SECONDS, value: {{ $values.workers.drainSeconds | quote }}}
  - {name: RECORD, value: {{ empty (or $values.record.url $values.record.existingClaim) | ternary "false" "true" | quote }}}
{{- with $values.record.url }}
  - {name: RECORD_URL, value: {{ . | quote }}}
{{- end }}
{{- if eq .part "web" }}
  - {name: ROLE, value: web}
{{- end }}
{{- range $name, $from := dict "SECRET_KEY" $values.secretKey "DATABASE_URL" $values.database "REDIS_URL" $values.redis }}
  - name: {{ $name }}
    valueFrom: {secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}}
{{- end }}
{{- range $name, $value := omit $values.settings "ALLOWED_HOSTS" }}
  - {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{/* The probes of what serves. A start that waits for others is no fault; a live process is never ended for what it lacks. */}}
{{- define "node.probes" -}}
startupProbe:
  httpGet: {path: /health/live, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ div .Values.workers.startSeconds 5 | max 1 }}
readinessProbe:
  httpGet: {path: /health/ready, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /health/live, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* Liveness of Celery's two: each renews its mark every few seconds. */}}
{{- define "node.mark" -}}
livenessProbe:
  exec:
    command: [sh, -c, 'test -n "$(find "$DATA_DIR/{{ . }}.started" -mmin -5 2>/dev/null)"']
  initialDelaySeconds: 300
  periodSeconds: 60
  timeoutSeconds: 10
  failureThreshold: 3
{{- end }}
