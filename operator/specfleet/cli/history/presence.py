"""What a Prometheus server has of a deployment, and what to switch on where it has nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from specfleet.api.names import LABEL_DEPLOYMENT
from specfleet.cli.history.reading import (
    ENGINE_NAMES,
    ROUTER_NAMES,
    Selection,
    engine_selection,
    groups,
    router_selection,
)
from specfleet.cli.history.recorded import ENGINE_DRAFTED, Grid
from specfleet.cli.history.request import HistoryProblem, Request
from specfleet.metrics.promapi import PromApi

_LISTED = 12
_PROMETHEUS_LABEL = re.sub(r"[^a-zA-Z0-9_]", "_", LABEL_DEPLOYMENT)
_ROUTERS = re.compile(r"(.+)-router-[a-z0-9]+(-[a-z0-9]+)?")


def selected(api: PromApi, request: Request) -> Selection:
    """Whose series to read. Raises HistoryProblem where there are none, with what to do about it."""
    own = router_selection(request.namespace, request.name), engine_selection(request.namespace, request.name)
    if request.selector is not None:
        own = Selection("router", request.selector), Selection("engine", request.selector)
    routers, engines = own
    if not request.engine_series and groups(api, routers.selector, "__name__", request.start, request.end):
        return routers
    names = {one.get("__name__", "") for one in groups(api, engines.selector, "__name__", request.start, request.end)}
    if ENGINE_DRAFTED in names:
        return engines
    if any(name.startswith("vllm:") for name in names):
        raise HistoryProblem(
            f"the pods of {request.namespace}/{request.name} have vLLM's series and none of them counted a draft: "
            "acceptance is recorded only where vLLM runs with --speculative-config; let one replica run with it, "
            "behind specfleet's router (pools.strategy: External) or beside the others, and replay a day later"
        )
    sglang = f'{{__name__=~"sglang:.+",{engines.matchers}}}'
    if groups(api, sglang, "__name__", request.start, request.end):
        raise HistoryProblem(
            f"of {request.namespace}/{request.name} only SGLang's own series were recorded, which count no accepted "
            "tokens: put specfleet's router before these pods (pools.strategy: External, enforcement: Observe), and "
            "replay a day later"
        )
    raise HistoryProblem(_absent(api, request))


def _absent(api: PromApi, request: Request) -> str:
    """Why there is nothing of this deployment: others that have series, or nothing that scrapes any."""
    where = f"{request.namespace}/{request.name}"
    url = request.endpoint.url
    by = f"namespace,pod,{_PROMETHEUS_LABEL}"
    routers = groups(api, f'{{__name__=~"{ROUTER_NAMES}",route!=""}}', by, request.start, request.end)
    vllm = f'{{__name__=~"{ENGINE_NAMES}",__name__=~"vllm:.+"}}'
    engines = groups(api, vllm, "namespace,pod", request.start, request.end)
    known = sorted({_deployment(labels) for labels in routers})
    if known == [""]:
        return (
            f"{url} has routers' series without the labels namespace and pod: add them by relabelling, "
            "or say which series are meant with --selector"
        )
    there = []
    if known:
        there.append(f"routers' of {_list(known)}")
    if engines:
        pods = sorted({f"{labels.get('namespace', '')}/{labels.get('pod', '')}" for labels in engines})
        there.append(f"vLLM's of the pods {_list(pods)}")
    if there:
        return (
            f"{url} has no series of {where} between these times; it has {' and '.join(there)}: name one of these, or "
            "the Deployment that the pods belong to, or the series with --selector"
        )
    return (
        f"{url} recorded nothing of {where} between these times, neither a router's series (specfleet_*) nor an "
        "engine's (vllm:*). Let Prometheus scrape port 9902 (path /stats/prometheus) of the router pods, by the "
        "PodMonitor that specfleet renders where the Prometheus operator is installed or by annotations; or port 8000 "
        "(path /metrics) of the engine pods where there is no router yet. Replay when a day has been recorded"
    )


def _deployment(labels: Mapping[str, str]) -> str:
    name = labels.get(_PROMETHEUS_LABEL)
    if not name:
        match = _ROUTERS.fullmatch(labels.get("pod", ""))
        name = match.group(1) if match is not None else ""
    namespace = labels.get("namespace", "")
    return f"{namespace}/{name}" if namespace and name else ""


def _list(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def nothing_usable(grid: Grid, selection: Selection, request: Request) -> str:
    """Why series that are there gave no block."""
    what = "routers" if selection.kind == "router" else "engines"
    where = f"{request.namespace}/{request.name}"
    if not grid.sources:
        return f"the {what} of {where} were scraped between these times and counted no request"
    return f"the {what} of {where} were read too seldom to subtract two samples from each other"
