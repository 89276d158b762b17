{{- define "berth.labels" -}}
app.kubernetes.io/name: berth-operator
app.kubernetes.io/part-of: berth
{{- end -}}

{{- /* The Secret with the webhooks' certificate; empty: the operator makes its own. */}}
{{- define "berth.certSecret" -}}
{{- if .Values.webhook.certManager.enabled -}}
berth-webhook-tls
{{- else -}}
{{- .Values.webhook.certSecret -}}
{{- end -}}
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
