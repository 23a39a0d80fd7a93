"""Reads the volume claims that a SpecDeployment names: rarely, and without harm where it may not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from specfleet.api.findings import Severity
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError
from specfleet.cluster.kinds import CLAIM, DEPLOYMENT
from specfleet.handlers.observed import Key, OwnedRecord
from specfleet.handlers.plan import ObjectId
from specfleet.handlers.rendering import Checked
from specfleet.render.claims import ClaimModes, claim_findings, claims_of

logger = logging.getLogger(__name__)
LOOK_SECONDS = 600.0
REFUSED_SECONDS = 15.0


@dataclass
class Claims:
    """What is known of the claims of one SpecDeployment, of one generation of its spec."""

    generation: int = -1
    next_look: float = 0.0
    known: Mapping[str, ClaimModes] = field(default_factory=dict)

    @property
    def one_node(self) -> tuple[str, ...]:
        """Names of those that only one node can have at a time."""
        return tuple(sorted(name for name, claim in self.known.items() if claim.one_node))


async def with_claims(
    client: ApiClient,
    key: Key,
    generation: int,
    checked: Checked,
    claims: Claims,
    owned: Mapping[ObjectId, OwnedRecord],
    now: float,
) -> Checked:
    """`checked` with what the claims add to it; they are read at a change of the spec and now and then."""
    assert checked.spec is not None
    if claims.generation != generation or now >= claims.next_look:
        claims.known = await _read(client, key, checked.spec)
        claims.generation, claims.next_look = generation, now + LOOK_SECONDS
    found = list(claim_findings(checked.spec, claims.known, running=_runs(owned.values())))
    refused = tuple(one for one in found if one.severity is Severity.ERROR)
    if refused:
        claims.next_look = min(claims.next_look, now + REFUSED_SECONDS)
    warnings = tuple(one for one in found if one.severity is not Severity.ERROR)
    return replace(checked, errors=(*checked.errors, *refused), warnings=(*checked.warnings, *warnings))


def _runs(owned: Iterable[OwnedRecord]) -> bool:
    return any(one.kind == DEPLOYMENT and one.pool is not None for one in owned)


async def _read(client: ApiClient, key: Key, spec: SpecDeploymentSpec) -> Mapping[str, ClaimModes]:
    """The claims that exist and may be read. Raises ClusterError where the API server does not answer."""
    found: dict[str, ClaimModes] = {}
    for name in sorted({use.name for use in claims_of(spec)}):
        try:
            body = await client.get(CLAIM, key[0], name)
        except ApiError as error:
            logger.info("claim %s/%s is not looked at: %s", key[0], name, error)
            continue
        if body is not None:
            found[name] = ClaimModes.of(body)
    return found
