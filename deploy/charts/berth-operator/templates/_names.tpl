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

{{- /* The volume with the CA of the API servers' client certificates; only `ca.crt`: a key beside it is none of our business. */}}
{{- define "berth.clientCA" -}}
{{- $from := .Values.webhook.clientCA -}}
{{- if and $from.secretName $from.configMapName -}}
{{- fail "webhook.clientCA is in a Secret or in a ConfigMap: name one of both, secretName or configMapName" -}}
{{- else if and .Values.webhook.enabled $from.secretName -}}
{name: client-ca, secret: {secretName: {{ $from.secretName | quote }}, items: [{key: ca.crt, path: ca.crt}]}}
{{- else if and .Values.webhook.enabled $from.configMapName -}}
{name: client-ca, configMap: {name: {{ $from.configMapName | quote }}, items: [{key: ca.crt, path: ca.crt}]}}
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
