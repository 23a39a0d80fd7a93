"""All checks, in the order in which they are made: the cluster, the namespaces, the operator, its fleets."""

from __future__ import annotations

from specfleet.doctor.checks import (
    accelerators,
    api_server,
    definition,
    dns,
    external,
    fleets,
    installer,
    leader,
    limits,
    network,
    operators,
    pod_security,
    prometheus,
    release,
    rights,
    storage,
    webhooks,
)
from specfleet.doctor.examine import Check

CHECKS: tuple[tuple[str, Check], ...] = (
    ("api-server", api_server.version),
    ("kubelets", api_server.kubelets),
    ("admission-policies", api_server.admission_policies),
    ("installer-rights", installer.check),
    ("accelerators", accelerators.check),
    ("dns", dns.check),
    ("kube-proxy", network.proxy),
    ("network-policies", network.policies),
    ("storage", storage.check),
    ("prometheus", prometheus.check),
    ("pod-security", pod_security.check),
    ("quota", limits.quota),
    ("limit-range", limits.limit_range),
    ("admission-webhooks", webhooks.check),
    ("definition", definition.check),
    ("release", release.check),
    ("operator", operators.check),
    ("settings", operators.settings),
    ("leader", leader.check),
    ("operator-rights", rights.check),
    ("pod-patch-policy", rights.pod_patch),
    ("watched-namespaces", fleets.watched),
    ("fleets", fleets.conditions),
    ("routers", fleets.routers),
    ("external-services", external.check),
    ("left-behind", fleets.left_behind),
)
