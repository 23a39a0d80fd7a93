"""What to do about a condition's reason, in a sentence or a command. Pure."""

from __future__ import annotations

from specfleet.api.conditions import Reason

# {ns} and {name} are the SpecDeployment's.
ACTIONS: dict[str, str] = {
    Reason.SPEC_INVALID: "edit the spec as the message says; specfleet validate -f FILE lists all findings",
    Reason.DRAFT_INCOMPATIBLE: "take another draft, or what the message says; specfleet preflight -f FILE compares "
    "again; drafts[].preflight: Warn makes the pool all the same",
    Reason.PREFLIGHT_RUNNING: "wait; kubectl describe job -n {ns} -l specfleet.dev/deployment={name} says what it "
    "waits for",
    Reason.NAME_TAKEN: "rename the SpecDeployment, or delete the object that has the name",
    Reason.PROGRESS_DEADLINE_EXCEEDED: "kubectl get pods -n {ns} -l specfleet.dev/deployment={name}, then describe "
    "one that is not ready",
    Reason.IMAGE_NOT_AVAILABLE: "check the image's name, its registry and the pull secrets (engine.image, "
    "pools.template)",
    Reason.UNSCHEDULABLE: "kubectl get pods -n {ns} -l specfleet.dev/deployment={name} -o wide; free accelerators, add "
    "nodes, or write tolerations and selectors in pools.template",
    Reason.QUOTA_EXCEEDED: "kubectl describe resourcequota -n {ns}",
    Reason.ADMISSION_DENIED: "change what is denied in pools.template, or the policy that denies it",
    Reason.ENGINE_CRASHES: "kubectl logs -n {ns} -l specfleet.dev/deployment={name},app.kubernetes.io/component=engine "
    "--previous --tail=50",
    Reason.ENGINE_NOT_STARTING: "kubectl describe pods -n {ns} -l specfleet.dev/deployment={name}",
    Reason.OUT_OF_MEMORY: "raise memory in pools.template, or lower max-model-len or gpu-memory-utilization in "
    "engine.args",
    Reason.CONFIG_NOT_AVAILABLE: "make the Secret or ConfigMap that is named, with that key, in namespace {ns}",
    Reason.VOLUME_NOT_AVAILABLE: "kubectl describe pvc -n {ns}",
    Reason.APPLY_FAILED: "kubectl describe specdeployment {name} -n {ns} has the API server's words",
    Reason.ROUTERS_CONNECTING: "check that routers reach DNS and engines in {ns} (UDP 53, TCP 8000; NetworkPolicies)",
    Reason.ROUTERS_UNREACHABLE: "let the operator reach port 9902 of router pods in {ns} (NetworkPolicies)",
    Reason.INSUFFICIENT_COVERAGE: "specfleet explain {name} -n {ns}; answers carry figures with "
    "--per-request-spec-decode-metrics on vLLM 0.29 or later",
    Reason.FIGURES_IMPLAUSIBLE: "the operator's log names the router and the figure",
    Reason.SERVICE_NOT_FOUND: "kubectl get services -n {ns}; write its name in pools.external",
    Reason.SERVICE_PORT_NOT_FOUND: "write a port of the Service in pools.external",
    Reason.SERVICE_WITHOUT_ENDPOINTS: "kubectl get endpointslices -n {ns}; compare the Service's selector with the "
    "pods' labels, and look at their readiness",
    Reason.ENDPOINTS_NOT_READABLE: "helm upgrade puts the operator's rights back",
    Reason.POOLS_OVERLAP: "narrow the selectors of the two Services",
    Reason.MIXED_PODS: "give each kind of pod a Service of its own, and name them in pools.external",
    Reason.POOLS_SWAPPED: "exchange the two names in pools.external",
    Reason.PROMETHEUS_UNREACHABLE: "check the URL, and that network policies let the operator reach it",
    Reason.PROMETHEUS_UNAUTHORIZED: "set prometheus.bearerTokenFile, or usernameFile and passwordFile, in the settings",
    Reason.PROMETHEUS_FAILED: "ask it yourself: curl URL/api/v1/query?query=up",
    Reason.ROUTERS_NOT_SCRAPED: "let Prometheus select the routers' PodMonitor (podMonitor.labels in the settings), or "
    "scrape pods by their annotations; it must keep the labels namespace and pod",
    Reason.ENGINE_METRICS_LOCKED: "let engines show /metrics without a key, or use a release whose answers carry "
    "figures",
    Reason.SERVICE_NOT_USABLE: "name a Service that selects the engines' pods in pools.external",
    Reason.PODS_DO_NOT_SPECULATE: "start these pods with speculation, or name the Service of those that have it",
    Reason.BASELINE_SPECULATES: "name the Service of pods without speculation in pools.external.baseline",
    Reason.POOLS_DIFFER: "start the pods of both Services alike but for speculation, as the message says",
    Reason.PROMETHEUS_PARTIAL: "look at the Prometheus behind the URL: a part of it (a shard, a store) does not answer",
    Reason.SERIES_UNUSABLE: "compare the scrape's relabelling with that of the routers' PodMonitor: kubectl get "
    "podmonitor {name}-router -n {ns} -o yaml",
    Reason.SERIES_STALE: "look at the routers' targets in Prometheus: are they scraped, and at least twice a block?",
    Reason.ENGINE_METRICS_UNREADABLE: "let the operator reach /metrics of the engines' pods in {ns} (NetworkPolicies)",
    Reason.ENGINE_COUNTS_NOTHING: "use a release of the engine whose answers or counters say what was accepted",
    Reason.ENGINE_SUPPRESSED: "kubectl rollout restart -n {ns} deployment of the speculative pool, and remove what "
    "stops the engine from drafts[0].args",
    Reason.CAPACITY_UNKNOWN: "write maxSequences of that side in pools.external",
    Reason.NO_ROOM_TO_MOVE: "raise pools.replicas or minBaseline, or wait until fewer requests are in flight",
    Reason.POOLS_OVERLOADED: "raise pools.replicas, or send less; specfleet off and on still move a route",
    Reason.LOAD_UNKNOWN: "let the operator reach the metrics page of the engines' pods in {ns} (NetworkPolicies)",
    Reason.ROUTES_REJECTED: "kubectl logs -n {ns} deployment/{name}-router -c envoy says what it refuses; report it "
    "with ConfigMap {name}-routes",
}
_DESCRIBE = "kubectl describe specdeployment {name} -n {ns}"


def action_for(reason: str, namespace: str, name: str) -> str:
    """The action; for a reason without one of its own, where the whole story is."""
    return ACTIONS.get(reason, _DESCRIBE).format(ns=namespace, name=name)
