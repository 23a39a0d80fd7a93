"""Everything that can be said about a SpecDeployment without a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.findings import Finding, FindingReason, error, errors, warning
from specfleet.api.models import Preflight
from specfleet.api.offline import parse
from specfleet.api.policy import Enforcement, Initial
from specfleet.api.v1alpha1 import External, MetricsSource, RouteMatch, SpecDeployment, Speculation
from specfleet.engines.registry import engine_module
from specfleet.engines.release import is_image_reference
from specfleet.render.template_rules import template_findings
from specfleet.settings import OperatorSettings
from specfleet.sizing.accelerators import accelerator, accelerators
from specfleet.sizing.answer import known_memory, product_of
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.started import PLANNED_ENGINES

_RESERVED_MOUNTS = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")


def validate(deployment: SpecDeployment, settings: OperatorSettings) -> list[Finding]:
    """Findings about an object that passed the schema, in the order of the spec; errors keep it from being rendered."""
    if deployment.spec.external is not None:
        return [*_route_findings(deployment), *_policy_findings(deployment), *_metrics_findings(deployment, settings)]
    engine = engine_module(deployment.spec.engine.type)
    found = engine.check(deployment)
    facts = None if errors(found) else engine.facts(deployment, speculative=True)
    found += _source_findings(deployment, settings)
    found += _accelerator_findings(deployment)
    found += template_findings(deployment, facts, settings)
    found += _route_findings(deployment)
    found += _policy_findings(deployment)
    found += _metrics_findings(deployment, settings)
    return found


def validate_document(
    document: Mapping[str, Any], settings: OperatorSettings
) -> tuple[SpecDeployment | None, list[Finding]]:
    """The typed object of a document and all findings; None where fields, types or rules are wrong. Never raises."""
    deployment, found = parse(document)
    if deployment is not None:
        found += validate(deployment, settings)
    return deployment, found


def _source_findings(deployment: SpecDeployment, settings: OperatorSettings) -> Iterator[Finding]:
    target, draft = deployment.spec.rendered_target, deployment.spec.draft
    for path, model, source in (
        ("spec.target", target.model, target.source),
        ("spec.drafts[0]", draft.model or "", draft.source),
    ):
        if model.startswith("/"):
            first = "/" + model.strip("/").split("/")[0]
            if first in _RESERVED_MOUNTS or first == "/":
                yield error(
                    FindingReason.INVALID_VALUE,
                    f"{path}.model",
                    f"a volume cannot be mounted at {model}: write a directory of its own, such as /models/target",
                )
        if source is not None and source.image is not None and not is_image_reference(source.image.reference):
            yield error(
                FindingReason.INVALID_VALUE,
                f"{path}.source.image.reference",
                "expected an image reference such as registry.example.com/models/llama:1, without a scheme and with "
                f"the repository in lower case, found {source.image.reference!r}",
            )
        if source is not None and source.host_path is not None and not settings.allow_host_path:
            yield error(
                FindingReason.HOST_PATH_NOT_ALLOWED,
                f"{path}.source.hostPath",
                "the operator's setting allowHostPath is false: use persistentVolumeClaim or huggingFace, "
                "or ask who runs the operator",
            )


def _accelerator_findings(deployment: SpecDeployment) -> Iterator[Finding]:
    """What pods are said to get has to be known, and to be what their nodes are selected by."""
    said = deployment.spec.pools.accelerator
    path = "spec.pools.accelerator.product"
    yield from _length_findings(deployment)
    if said.product is None or said.memory is not None:
        return
    try:
        named = accelerator(said.product)
    except SizingProblem as problem:
        yield error(FindingReason.INVALID_VALUE, path, str(problem))
        return
    label = product_of(deployment)
    selected = next((one for one in accelerators().values() if label in one.products), None)
    if selected is not None and selected != named:
        yield error(
            FindingReason.INVALID_VALUE,
            path,
            f"pools.template selects nodes with {label}, which is {selected.name}, and product says {said.product}: "
            "remove one of them",
        )


def _length_findings(deployment: SpecDeployment) -> Iterator[Finding]:
    """A length that is stated is for the plan, which there is only where what it needs is known."""
    spec = deployment.spec
    if spec.pools.sequence_tokens is None:
        return
    if spec.engine.type not in PLANNED_ENGINES:
        why = f"how {spec.engine.type} divides its memory is not known: remove it"
    elif spec.draft.preflight is Preflight.SKIP:
        why = "the preflight makes the plan, and drafts[0].preflight is Skip: write Warn, or remove it"
    elif known_memory(deployment) is None:
        why = "what the pods get is not known: write pools.accelerator.product or memory, or remove it"
    else:
        return
    yield warning(FindingReason.UNUSED_FIELD, "spec.pools.sequenceTokens", f"there is no KV plan to count by it; {why}")


def _route_findings(deployment: SpecDeployment) -> Iterator[Finding]:
    routes = deployment.spec.routing.routes
    earlier: list[tuple[str, RouteMatch]] = []
    for index, route in enumerate(routes):
        takers = [_taker(match, earlier) for match in route.match]
        if takers and all(taker is not None for taker in takers):
            names = ", ".join(sorted({taker for taker in takers if taker is not None}))
            yield warning(
                FindingReason.UNREACHABLE_ROUTE,
                f"spec.routing.routes[{index}]",
                f"no request reaches route {route.name}: all that it matches is taken before it by {names}; "
                "move it up or change its match",
            )
        if route.policy is not None and route.speculation is not Speculation.AUTO:
            yield warning(
                FindingReason.UNUSED_FIELD,
                f"spec.routing.routes[{index}].policy",
                f"route {route.name} has speculation {route.speculation}, so its policy decides nothing",
            )
        earlier += [(route.name, match) for match in route.match]


def _policy_findings(deployment: SpecDeployment) -> Iterator[Finding]:
    """A route that begins in baseline is judged by what explores; under Observe, or with a share of 0, nothing does."""
    policy = deployment.spec.policy
    external = deployment.spec.external
    if external is not None and (external.speculative is None or external.baseline is None):
        yield from _one_sided_findings(deployment, external)
        return
    judged = [route.name for route in deployment.spec.routing.routes if route.speculation is Speculation.AUTO]
    if policy.initial is not Initial.BASELINE or not judged:
        return
    if policy.enforcement is Enforcement.OBSERVE:
        yield warning(
            FindingReason.NOTHING_TO_WATCH,
            "spec.policy.enforcement",
            f"Observe moves nothing, so nothing of {', '.join(judged)} reaches speculation and there is nothing to "
            "decide by: write initial: Speculative, or enforcement: Enforce",
        )
    elif policy.exploration.max_percent == 0:
        yield warning(
            FindingReason.NOTHING_TO_WATCH,
            "spec.policy.exploration.maxPercent",
            f"without exploration nothing of {', '.join(judged)} reaches speculation and they stay in baseline: "
            "write 1 or more, or initial: Speculative",
        )


def _one_sided_findings(deployment: SpecDeployment, external: External) -> Iterator[Finding]:
    if external.speculative is None:
        yield warning(
            FindingReason.NOTHING_TO_WATCH,
            "spec.pools.external",
            "a pool without speculation has no acceptance to see: write the Service of pods with it as "
            "external.speculative",
        )
    for index, route in enumerate(deployment.spec.routing.routes):
        if route.speculation is not Speculation.AUTO:
            yield warning(
                FindingReason.UNUSED_FIELD,
                f"spec.routing.routes[{index}].speculation",
                f"route {route.name} has speculation {route.speculation}, and with one External pool everything goes "
                "there: remove it, or write the other pool's Service",
            )


def _metrics_findings(deployment: SpecDeployment, settings: OperatorSettings) -> Iterator[Finding]:
    metrics = deployment.spec.metrics
    if metrics.source is not MetricsSource.PROMETHEUS:
        return
    own = metrics.prometheus.url if metrics.prometheus is not None else None
    if own is not None and not settings.prometheus.allow_url_in_resources:
        yield error(
            FindingReason.PROMETHEUS_URL_NOT_ALLOWED,
            "spec.metrics.prometheus.url",
            "the operator's setting prometheus.allowUrlInResources is false: remove the url, so that the settings' "
            "Prometheus is asked, or ask who runs the operator",
        )
    if own is None and settings.prometheus.url is None:
        yield error(
            FindingReason.PROMETHEUS_UNKNOWN,
            "spec.metrics",
            "source Prometheus, and neither spec.metrics.prometheus.url nor the operator's setting prometheus.url says "
            "where it is: write one of them, or source: Direct",
        )


def _taker(match: RouteMatch, earlier: list[tuple[str, RouteMatch]]) -> str | None:
    """The first earlier route that takes everything that `match` matches."""
    return next((name for name, other in earlier if _covers(other, match)), None)


def _covers(wide: RouteMatch, narrow: RouteMatch) -> bool:
    """Whether each request that `narrow` matches is matched by `wide`: the keys of an entry are AND."""
    if wide.header is not None:
        if narrow.header is None or narrow.header.value != wide.header.value:
            return False
        if narrow.header.name.lower() != wide.header.name.lower():
            return False
    if wide.model is not None and narrow.model != wide.model:
        return False
    if wide.tools is not None and narrow.tools != wide.tools:
        return False
    if wide.response_format is not None:
        return narrow.response_format is not None and set(narrow.response_format) <= set(wide.response_format)
    return True
