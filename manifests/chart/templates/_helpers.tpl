{{- define "slicewarden.policy" -}}
{{- .Values.policy | default (.Files.Get "files/policy.yaml") -}}
{{- end -}}

{{- /* As kustomize names it: a change of policy is a new name, and so a rollout. */}}
{{- define "slicewarden.policyName" -}}
{{- $data := dict "policy.yaml" (include "slicewarden.policy" .) -}}
{{- $hash := dict "data" $data "kind" "ConfigMap" "name" "" | toJson | sha256sum | trunc 10 -}}
slicewarden-policy-{{ $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end -}}
