{{/* An image's reference: by its digest, else by its tag; empty without a repository. */}}
{{- define "bitfusion.image" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else if .repository -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{/* Not empty where every profile is served: never without the policy that holds the account to them. */}}
{{- define "bitfusion.profiles" -}}
{{- if and .Values.profiles.serve (include "bitfusion.policies" .) -}}
yes
{{- end -}}
{{- end -}}

{{/* Not empty where policies are wanted and known to the API server. */}}
{{- define "bitfusion.policies" -}}
{{- if and .Values.policies (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
yes
{{- end -}}
{{- end -}}
