"""The operator's rights: too few, too many, and the one on pods that must be bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from specfleet.doctor.facts import Facts, Manifest, May, Right
from specfleet.doctor.findings import Item, Seen, error, warning
from specfleet.doctor.installed import Installed, enumerated, operators, watched_namespaces
from specfleet.doctor.rights import MONITORING, PATCH_PODS, lease_rights, operator_rights, right

MOST = 6
_GROUP = "/apis/admissionregistration.k8s.io/v1"
_UNWANTED = (
    ("", "secrets", "list"),
    ("rbac.authorization.k8s.io", "clusterroles", "create"),
    ("", "pods/exec", "create"),
)


def check(facts: Facts) -> Iterator[Item]:
    """What each operator's service account may do, asked of the API server."""
    monitors = facts.get(f"/apis/{MONITORING}/v1") is not None
    for one in operators(facts):
        places = watched_namespaces(facts, one) or ("",)
        needed = [need for place in places for need in operator_rights(place, monitors=monitors)]
        needed += lease_rights(one.namespace)
        unwanted = [right(*each, place) for place in places for each in _UNWANTED]
        facts.prepare(*(May(each, one.account) for each in needed + unwanted))
        lacking = [each for each in needed if not facts.may(each, one.account)]
        too_many = [each for each in unwanted if facts.may(each, one.account)]
        if lacking:
            yield error(
                f"service account {one.account}",
                f"it may not {_told(lacking)}",
                "the rights that the chart grants: without them the operator stops or cannot repair",
                "helm upgrade puts the chart's roles back; kubectl get clusterrolebindings,rolebindings -A | grep "
                "specfleet shows what is bound",
            )
        if too_many:
            yield warning(
                f"service account {one.account}",
                f"it may {_told(too_many)}, which the chart does not grant",
                "least access: somebody has bound more to it",
                "kubectl get clusterrolebindings,rolebindings -A -o wide | grep specfleet; delete the binding that is "
                "not the chart's",
            )
        if not lacking and not too_many:
            yield Seen(f"{one.account} has the {len(needed)} rights that it needs")


def pod_patch(facts: Facts) -> Iterator[Item]:
    """Whoever may patch pods may change any of them; a policy narrows that to one annotation of router pods."""
    for one in operators(facts):
        places = watched_namespaces(facts, one) or ("",)
        patching = [right(*PATCH_PODS[:2], PATCH_PODS[2][0], place) for place in places]
        facts.prepare(*(May(each, one.account) for each in patching))
        allowed = [each for each in patching if facts.may(each, one.account)]
        bound = _bound(facts, one.account)
        if allowed:
            yield _bounded(one, bound)
        else:
            yield Seen(f"{one.account} may not patch pods: switches are served within 90 s")


def _bounded(one: Installed, bound: tuple[list[str], list[str]]) -> Item:
    policies, denying = bound
    upgrade = "helm upgrade puts policy and binding back, or --set podPatch.enabled=false takes the right away"
    if not policies:
        return error(
            f"service account {one.account}",
            "it may patch every pod, and no ValidatingAdmissionPolicy narrows that",
            "the chart's policy: one annotation of router pods, nothing else",
            upgrade,
        )
    if not denying:
        return error(
            f"ValidatingAdmissionPolicy {policies[0]}",
            "no binding makes it deny anything",
            "a ValidatingAdmissionPolicyBinding with validationActions [Deny]",
            upgrade,
        )
    return Seen(f"the operator's patches of pods are bounded by {denying[0]}")


def _bound(facts: Facts, account: str) -> tuple[list[str], list[str]]:
    """Policies about the account, and those of them that are bound to deny everywhere."""
    policies = facts.listed(f"{_GROUP}/validatingadmissionpolicies")
    bindings = facts.listed(f"{_GROUP}/validatingadmissionpolicybindings")
    named = [str(one["metadata"]["name"]) for one in policies if _about(one, account)]
    return named, [name for name in named if any(_denies(one, name) for one in bindings)]


def _about(policy: Manifest, account: str) -> bool:
    spec = policy["spec"]
    expressions = [str(one.get("expression")) for one in spec.get("matchConditions") or ()]
    pods = any("pods" in (rule.get("resources") or ()) for rule in _rules(spec))
    return pods and any(f"'{account}'" in text for text in expressions) and spec.get("failurePolicy") != "Ignore"


def _rules(spec: Manifest) -> Iterable[Manifest]:
    rules: list[Manifest] = (spec.get("matchConstraints") or {}).get("resourceRules") or []
    return rules


def _denies(binding: Manifest, policy: str) -> bool:
    spec = binding["spec"]
    everywhere = not spec.get("matchResources") or not (
        spec["matchResources"].get("namespaceSelector") or spec["matchResources"].get("objectSelector")
    )
    return spec.get("policyName") == policy and "Deny" in (spec.get("validationActions") or ()) and everywhere


def _told(rights: list[Right]) -> str:
    """Rights on one thing together, and the namespaces once: `get, list pods in namespace serving`."""
    verbs: dict[str, dict[str, None]] = defaultdict(dict)
    for each in rights:
        verbs[str(replace(each, namespace="")).partition(" ")[2]][each.verb] = None
    told = enumerated((f"{', '.join(found)} {what}" for what, found in verbs.items()), MOST)
    places = sorted({each.namespace for each in rights if each.namespace})
    everywhere = any(not each.namespace for each in rights)
    return told if everywhere or not places else f"{told} in namespace {', '.join(places)}"
