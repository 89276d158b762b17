{{- define "berth.labels" -}}
app.kubernetes.io/name: berth-api
app.kubernetes.io/part-of: berth
{{- end -}}

{{- define "berth.scheme" -}}
{{ if .Values.tls.certSecret }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}
