"""What the pods of External pools do not have in common with each other or with the SpecDeployment. Pure.

What concerns one pool alone (no endpoints, pods of both kinds, unreadable arguments) is found where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.external import ExternalPool, ExternalPools
from specfleet.engines.release import agree, parse_version

TLS_FLAGS = ("--ssl-certfile", "--ssl-keyfile")
FORCED_USAGE_FLAG = "--enable-force-include-usage"


def external_findings(deployment: SpecDeployment, pools: ExternalPools) -> list[Finding]:
    """Findings about pools as they were seen, by name; nothing is said of what is not known."""
    if deployment.spec.external is None:
        return []
    return [
        *_model_findings(deployment, pools),
        *_served_name_findings(deployment, pools),
        *_declared_findings(deployment, pools),
        *_flag_findings(pools),
    ]


def _side(name: str) -> str:
    return "baseline" if name == BASELINE_POOL else "speculative"


def _path(name: str) -> str:
    return f"spec.pools.external.{_side(name)}.service"


def _model_findings(deployment: SpecDeployment, pools: ExternalPools) -> Iterator[Finding]:
    """A path is what a pod calls its model: only names that somebody else gave can be compared with one another."""
    named = {name: pool for name, pool in pools.items() if pool.model is not None and not pool.model.startswith("/")}
    baseline, speculative = named.get(BASELINE_POOL), named.get(deployment.spec.draft.name)
    if baseline is not None and speculative is not None and baseline.model != speculative.model:
        yield warning(
            FindingReason.MODEL_MISMATCH,
            "spec.pools.external",
            f"the pods of Service {baseline.service} load {baseline.model}, those of Service {speculative.service} "
            f"{speculative.model}: a switch would change what clients are answered; start both with one model",
        )
    target = deployment.spec.target
    for pool in named.values():
        if target is not None and not target.model.startswith("/") and pool.model != target.model:
            yield warning(
                FindingReason.MODEL_MISMATCH,
                "spec.target.model",
                f"target.model says {target.model}, the pods of Service {pool.service} load {pool.model}: write that, "
                "or the Service of other pods",
            )


def _served_name_findings(deployment: SpecDeployment, pools: ExternalPools) -> Iterator[Finding]:
    named = {name: pool for name, pool in pools.items() if pool.served_names}
    baseline, speculative = named.get(BASELINE_POOL), named.get(deployment.spec.draft.name)
    if baseline is not None and speculative is not None:
        yield from _different_names(baseline, speculative)
    served = deployment.served_name
    for pool in named.values():
        if served and served not in pool.served_names:
            known = ", ".join(pool.served_names)
            aliases = any(match.model for route in deployment.spec.routing.routes for match in route.match)
            consequence = (
                "requests with an alias would be answered 404" if aliases else "clients that send it are answered 404"
            )
            report = error if aliases else warning
            yield report(
                FindingReason.SERVED_NAME_MISMATCH,
                "spec.target.servedName",
                f"the pods of Service {pool.service} serve {known}, not {served}: {consequence}; write one of their "
                f"names, or start them with --served-model-name {served}",
            )


def _different_names(baseline: ExternalPool, speculative: ExternalPool) -> Iterator[Finding]:
    ours, theirs = set(baseline.served_names), set(speculative.served_names)
    if ours == theirs:
        return
    shared = ours & theirs
    report = warning if shared else error
    only = (ours ^ theirs) if shared else (ours | theirs)
    yield report(
        FindingReason.SERVED_NAME_MISMATCH,
        "spec.pools.external",
        f"Service {baseline.service} serves {', '.join(sorted(ours))}, Service {speculative.service} serves "
        f"{', '.join(sorted(theirs))}: a request for {' or '.join(sorted(only))} is answered 404 by the other pool; "
        "start both with the same --served-model-name",
    )


def _declared_findings(deployment: SpecDeployment, pools: ExternalPools) -> Iterator[Finding]:
    """What the object says otherwise than the pods; the pods' own is what counts."""
    spec = deployment.spec
    stated = parse_version(spec.engine.version) if spec.engine.version is not None else None
    for pool in pools.values():
        found = parse_version(pool.release) if pool.release is not None else None
        if stated is not None and found is not None and not agree(stated, found):
            yield warning(
                FindingReason.RELEASE_MISMATCH,
                "spec.engine.version",
                f"engine.version says {stated}, the pods of Service {pool.service} run {found}, which counts: remove "
                "engine.version",
            )
    speculative = pools.get(spec.draft.name)
    if not spec.drafts or speculative is None:
        return
    draft = spec.drafts[0]
    if speculative.draft_tokens is not None and speculative.draft_tokens != draft.tokens:
        yield warning(
            FindingReason.DRAFT_MISMATCH,
            "spec.drafts[0].tokens",
            f"tokens says {draft.tokens}, the pods of Service {speculative.service} draft {speculative.draft_tokens} a "
            f"round, which counts: write tokens: {speculative.draft_tokens}",
        )
    if speculative.draft_mode is not None and speculative.draft_mode != draft.mode:
        yield warning(
            FindingReason.DRAFT_MISMATCH,
            "spec.drafts[0].mode",
            f"mode says {draft.mode}, the pods of Service {speculative.service} were started with "
            f"{speculative.draft_mode}: write mode: {speculative.draft_mode}",
        )


def _flag_findings(pools: ExternalPools) -> Iterator[Finding]:
    for name, pool in pools.items():
        words = [word for pod in pool.pods for word in pod.args or ()]
        if any(word.partition("=")[0] in TLS_FLAGS for word in words):
            yield error(
                FindingReason.ENGINE_SPEAKS_TLS,
                _path(name),
                f"the pods of Service {pool.service} were started with {' or '.join(TLS_FLAGS)}, and the router speaks "
                "plain HTTP to engines: remove the flags; TLS for clients is the work of a Gateway before the router",
            )
        if pool.forced_usage:
            yield warning(
                FindingReason.ENGINE_FORCES_USAGE,
                _path(name),
                f"the pods of Service {pool.service} were started with {FORCED_USAGE_FLAG}, which puts usage on every "
                "chunk of every stream: remove it; the router asks for usage itself and hides what clients did not ask "
                "for",
            )
