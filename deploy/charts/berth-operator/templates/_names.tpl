{{- define "berth.labels" -}}
app.kubernetes.io/name: berth-operator
app.kubernetes.io/part-of: berth
{{- end -}}
