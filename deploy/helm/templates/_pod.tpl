{{/* What all pods share: no root, no privileges, a read-only file system, no token of the cluster. */}}
{{- define "fedcomp.pod" }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "fedcomp.container" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
startupProbe:
  exec: { command: [python, /usr/local/lib/fedcomp/health.py, "127.0.0.1:9099"] }
  timeoutSeconds: 10
  failureThreshold: 30
livenessProbe:
  exec: { command: [python, /usr/local/lib/fedcomp/health.py, "127.0.0.1:9099"] }
  periodSeconds: 30
  timeoutSeconds: 10
{{- end }}

{{- define "fedcomp.claim" }}
- metadata: { name: {{ .name }} }
  spec:
    accessModes: [ReadWriteOnce]
    resources: { requests: { storage: {{ .size }} } }
{{- end }}
