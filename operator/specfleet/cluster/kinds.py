"""The kinds that the operator reads or writes, and their addresses at the API server."""

from __future__ import annotations

from dataclasses import dataclass

from specfleet.api.v1alpha1 import API_VERSION, GROUP, KIND, PLURAL, VERSION


@dataclass(frozen=True)
class Kind:
    """One namespaced kind. `plural` is its name in paths."""

    api_version: str
    kind: str
    plural: str

    @property
    def prefix(self) -> str:
        """The path up to the version."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Path of a collection (no name), an object or a subresource."""
        parts = [self.prefix, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    @property
    def all_path(self) -> str:
        """Path of the collection over all namespaces."""
        return f"{self.prefix}/{self.plural}"


SPEC_DEPLOYMENT = Kind(API_VERSION, KIND, PLURAL)
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
JOB = Kind("batch/v1", "Job", "jobs")
POD = Kind("v1", "Pod", "pods")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENT = Kind("events.k8s.io/v1", "Event", "events")

POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")

_WATCHED = (SERVICE_ACCOUNT, CONFIG_MAP, SERVICE, DISRUPTION_BUDGET, JOB, DEPLOYMENT)
# What a SpecDeployment may own. The order is the order of writing: what pods mount or name comes before pods.
OWNED = (*_WATCHED, POD_MONITOR)
# What kopf watches. PodMonitor, which a cluster need not have, is looked at in another way.
SELECTED = (*_WATCHED, POD)
GROUP_VERSION = f"/apis/{GROUP}/{VERSION}"


def kind_of(manifest: dict[str, object]) -> Kind:
    """The kind of a rendered object. Raises KeyError for one that the operator does not own."""
    for kind in OWNED:
        if (kind.api_version, kind.kind) == (manifest.get("apiVersion"), manifest.get("kind")):
            return kind
    raise KeyError(f"{manifest.get('apiVersion')} {manifest.get('kind')} is none of the owned kinds")
