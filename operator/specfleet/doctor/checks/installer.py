"""Before an install: may the caller make what the chart makes?"""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.doctor.facts import CannotTell, Facts, May, Right
from specfleet.doctor.findings import Item, Seen, error
from specfleet.doctor.installed import enumerated, operators
from specfleet.doctor.rights import install_parts, operator_rights

_ESCALATE = Right("rbac.authorization.k8s.io", "clusterroles", "escalate")


def check(facts: Facts) -> Iterator[Item]:
    """Where no operator is found: the rights that `helm install` with default values takes."""
    if operators(facts):
        yield Seen("an operator is installed; the rights to install one are not asked for")
        return
    namespace = facts.scope.operator_namespace
    parts = list(install_parts(namespace, make_namespace=_missing(facts, namespace)))
    facts.prepare(*(May(right) for part in parts for right in part.rights), May(_ESCALATE))
    complete = True
    for part in parts:
        lacking = [str(right) for right in part.rights if not facts.may(right)]
        if lacking:
            complete = False
            yield error("", f"you may not {enumerated(lacking)}", "the rights to install the chart", part.without)
    if complete:
        yield from _granting(facts)


def _granting(facts: Facts) -> Iterator[Item]:
    """RBAC lets nobody grant what he does not have himself, unless he may escalate."""
    if facts.may(_ESCALATE):
        yield Seen("you may create all that the chart creates")
        return
    rights = list(operator_rights(""))
    facts.prepare(*(May(right) for right in rights))
    lacking = [str(right) for right in rights if not facts.may(right)]
    if not lacking:
        yield Seen("you may create all that the chart creates, and grant the operator its rights")
        return
    yield error(
        "",
        f"you may create ClusterRoles, but not grant what you may not do yourself: {enumerated(lacking)}",
        "every right of the operator, or the verb escalate on clusterroles",
        "install as a cluster administrator, or have one apply the chart's ClusterRole and install with "
        "--set rbac.create=false",
    )


def _missing(facts: Facts, namespace: str) -> bool:
    try:
        return facts.get(f"/api/v1/namespaces/{namespace}") is None
    except CannotTell:
        return False
