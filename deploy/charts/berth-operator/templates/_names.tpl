{{- define "berth.labels" -}}
app.kubernetes.io/name: berth-operator
app.kubernetes.io/part-of: berth
{{- end -}}

{{- /* Both vip and vitistack serve Services; without a class is vitistack's. */}}
{{- define "berth.vipClasses" -}}
{{- if has "vip" .Values.dialects -}}
{{- if .Values.vip.classes -}}
{{- join "," .Values.vip.classes -}}
{{- else if has "vitistack" .Values.dialects -}}
paas.org/vip
{{- end -}}
{{- end -}}
{{- end -}}
