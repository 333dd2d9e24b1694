-- Argo CD's health of a GPUSharingPolicy: resource.customizations.health.slicewarden.dev_GPUSharingPolicy in ConfigMap argocd-cm.
local health = {status = "Progressing", message = "the controller has not seen it yet"}
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Stalled" and condition.status == "True" then
    return {status = "Degraded", message = condition.message}
  end
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
    end
  end
end
return health
