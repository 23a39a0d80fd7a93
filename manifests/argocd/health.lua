-- Health of a SpecDeployment for Argo CD. Speculation that is off by policy is healthy.
local function condition(kind)
  for _, candidate in ipairs((obj.status or {}).conditions or {}) do
    if candidate.type == kind then
      return candidate
    end
  end
  return nil
end

local function holds(kind, status)
  local found = condition(kind)
  return found ~= nil and found.status == status
end

local function message(kind, otherwise)
  local found = condition(kind)
  if found ~= nil and found.message ~= nil and found.message ~= "" then
    return found.message
  end
  return otherwise
end

if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "being deleted"}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "waiting for specfleet to see this generation"}
end
if holds("Stalled", "True") then
  return {status = "Degraded", message = message("Stalled", "stalled: it needs a person")}
end
if holds("Reconciling", "True") then
  return {status = "Progressing", message = message("Reconciling", "rolling out")}
end
if holds("Ready", "True") then
  local summary = obj.status.summary
  if summary ~= nil and summary.mode ~= nil then
    return {status = "Healthy", message = summary.mode}
  end
  return {status = "Healthy", message = message("Ready", "ready")}
end
if holds("Ready", "False") then
  return {status = "Degraded", message = message("Ready", "not ready")}
end
return {status = "Progressing", message = message("Ready", "waiting for the first status")}
