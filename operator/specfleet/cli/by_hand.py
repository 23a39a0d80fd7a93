"""`specfleet off`, `on` and `auto`: a person's word about routes in an incident, which ends by itself."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from specfleet.api.base import duration
from specfleet.api.by_hand import ALL, ANNOTATION_BY_HAND, LONGEST, MAX_REASON, ByHand, Word, Words, obeyed, words_of
from specfleet.api.status import RouteStatus, SpecDeploymentStatus
from specfleet.api.v1alpha1 import SpecDeployment, SpecDeploymentSpec
from specfleet.cli.explain import ExplainError, read_deployment
from specfleet.cluster.auth import connect
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError, ClusterError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import SPEC_DEPLOYMENT

ATTEMPTS = 5
WRITE_SECONDS = 60.0
LOOK_SECONDS = 0.5
NOT_SERVED = 3

Name = Annotated[str, typer.Argument(help="The SpecDeployment.")]
Route = Annotated[str | None, typer.Argument(help="One of its routes; default: all.")]
For = Annotated[str, typer.Option("--for", help="How long, such as 30m or 2h; then it ends by itself.")]
Why = Annotated[str, typer.Option("--reason", help="Why, for whoever looks next; shown in status.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the current context.")
]
Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig. Default: as kubectl.")]
Wait = Annotated[str, typer.Option("--wait", help="How long to wait until all routers serve it; 0s does not wait.")]


class ByHandError(Exception):
    """The word cannot be given; the text says why and what to do."""


def off_command(
    name: Name,
    how_long: For,
    reason: Why,
    route: Route = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    wait: Wait = "30s",
) -> None:
    """Serve a route, or all, without speculation for a while: for incidents. The spec in Git stays as it is."""
    _give("off", name, route, how_long, reason, namespace, kubeconfig, wait)


def on_command(
    name: Name,
    how_long: For,
    reason: Why,
    route: Route = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    wait: Wait = "30s",
) -> None:
    """Serve a route, or all, with speculation for a while. `speculation: Never` in the spec wins over it."""
    _give("on", name, route, how_long, reason, namespace, kubeconfig, wait)


def auto_command(
    name: Name,
    route: Route = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Take back what `off` and `on` said: spec and policy decide again."""
    try:
        body = asyncio.run(_write(name, namespace, kubeconfig, lambda body: _without(body, route)))
    except (ByHandError, ExplainError, ClusterError) as error:
        _end("auto", str(error))
    typer.echo(f"{_title(body, route)}: nothing is said by hand any more; spec and policy decide.")


def _give(
    word: Word,
    name: str,
    route: str | None,
    how_long: str,
    reason: str,
    namespace: str | None,
    kubeconfig: Path | None,
    wait: str,
) -> None:
    try:
        said = _said(word, how_long, reason, time.time())
        patience = _duration(wait, "--wait").total_seconds()
        asyncio.run(_served(name, namespace, kubeconfig, route, said, patience))
    except (ByHandError, ExplainError, ClusterError) as error:
        _end(word, str(error))


def _said(word: Word, how_long: str, reason: str, now: float) -> ByHand:
    length = _duration(how_long, "--for")
    if not timedelta(seconds=1) <= length <= LONGEST:
        hours = int(LONGEST.total_seconds() // 3600)
        raise ByHandError(f"expected --for between 1s and {hours}h, found {how_long}: for longer, write it in the spec")
    told = " ".join(reason.split())
    if not told or len(told) > MAX_REASON:
        raise ByHandError(f"expected --reason of 1 to {MAX_REASON} characters, found {len(told)}")
    return ByHand(word, float(math.ceil(now + length.total_seconds())), told)


def _duration(text: str, option: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise ByHandError(f"{option}: {error}") from None


def with_word(body: Mapping[str, Any], route: str | None, said: ByHand, now: float) -> Words:
    """What the annotation is to say with one word more; what has ended is left out. Raises ByHandError."""
    spec = _spec(body)
    names = _named(body, spec, route)
    known = _known(body, spec, now)
    if said.word == "on" and not obeyed(spec.routing, dict.fromkeys(names, said)):
        what = f"route {route} says" if route is not None else "all routes say"
        raise ByHandError(f"{what} speculation: Never in the spec, which wins over `on`: change it there")
    if route is None:
        return Words({ALL: said})
    return replace(known, of={**known.of, route: said})


def _without(body: Mapping[str, Any], route: str | None) -> Words:
    spec = _spec(body)
    _named(body, spec, route)
    known = _known(body, spec, time.time())
    if route is None:
        return Words({})
    kept = {name: word for name, word in known.of.items() if name != route}
    everywhere = kept.pop(ALL, None)
    if everywhere is not None:
        # What was said of all goes on for the others.
        kept = {**{one.name: everywhere for one in spec.routing.routes if one.name != route}, **kept}
    return Words(kept)


def _known(body: Mapping[str, Any], spec: SpecDeploymentSpec, now: float) -> Words:
    known = words_of(body["metadata"].get("annotations"), [one.name for one in spec.routing.routes])
    return Words({name: word for name, word in known.of.items() if word.until > now})


def _spec(body: Mapping[str, Any]) -> SpecDeploymentSpec:
    meta = body["metadata"]
    try:
        spec = SpecDeployment.parse(dict(body)).spec
    except ValueError:
        raise ByHandError(
            f"the spec of {meta['namespace']}/{meta['name']} is not what this version of specfleet knows: "
            "use the specfleet of the operator's version"
        ) from None
    if spec.external is not None and (spec.external.baseline is None or spec.external.speculative is None):
        raise ByHandError("there is one pool only, so that no route can be moved: name the second Service first")
    return spec


def _named(body: Mapping[str, Any], spec: SpecDeploymentSpec, route: str | None) -> list[str]:
    names = [one.name for one in spec.routing.routes]
    if route is not None and route not in names:
        raise ByHandError(f"{body['metadata']['name']} has no route {route}: its routes are {', '.join(names)}")
    return names if route is None else [route]


async def _write(name: str, namespace: str | None, kubeconfig: Path | None, change: Any) -> dict[str, Any]:
    connection = await connect(kubeconfig)
    async with connection.session() as session:
        gate = WriteGate()
        gate.extend(time.monotonic() + WRITE_SECONDS)
        client = ApiClient(session, connection.server, gate)
        for attempt in range(ATTEMPTS):
            body = await read_deployment(client, connection, name, namespace)
            try:
                return await client.annotate(SPEC_DEPLOYMENT, body, {ANNOTATION_BY_HAND: change(body).text()})
            except ApiError as error:
                if not error.conflict:
                    raise ByHandError(f"{name} cannot be annotated: {error.message or error}") from error
                if attempt == ATTEMPTS - 1:
                    raise ByHandError(f"{name} was changed by others {ATTEMPTS} times meanwhile: try again") from error
    raise AssertionError("unreachable")


async def _served(
    name: str, namespace: str | None, kubeconfig: Path | None, route: str | None, said: ByHand, patience: float
) -> None:
    body = await _write(name, namespace, kubeconfig, lambda body: with_word(body, route, said, time.time()))
    began = time.monotonic()
    spec = _spec(body)
    words = obeyed(spec.routing, dict.fromkeys(_named(body, spec, route), said))
    typer.echo(f"{_title(body, route)}: {said.word} until {said.until_text}.")
    for other in sorted(set(_named(body, spec, route)) - words.keys()):
        typer.echo(f"Route {other} says speculation: Never in the spec and stays off.")
    if patience <= 0.0:
        return
    connection = await connect(kubeconfig)
    async with connection.session() as session:
        client = ApiClient(session, connection.server, WriteGate())
        while True:
            status = _status(await read_deployment(client, connection, name, namespace))
            waiting = [one for one in words if not _serves(status.get(one), said)]
            if not waiting:
                typer.echo(f"All routers serve it, {time.monotonic() - began:.1f} s after it was said.")
                return
            if time.monotonic() - began > patience:
                break
            await asyncio.sleep(LOOK_SECONDS)
    one = status.get(waiting[0])
    why = "the operator has not taken it up: is it running? `specfleet doctor` tells"
    if one is not None and one.by_hand is not None and one.by_hand.until == said.until_text:
        why = one.message
    typer.echo(f"specfleet {said.word}: said, and not served yet by all routers: route {waiting[0]}: {why}", err=True)
    raise typer.Exit(NOT_SERVED)


def _serves(one: RouteStatus | None, said: ByHand) -> bool:
    if one is None or one.by_hand is None or one.by_hand.until != said.until_text:
        return False
    return one.speculative_percent.served == (100 if said.word == "on" else 0)


def _status(body: Mapping[str, Any]) -> dict[str, RouteStatus]:
    try:
        status = SpecDeploymentStatus.model_validate(body.get("status") or {})
    except ValueError:
        return {}
    return {one.name: one for one in status.routes}


def _title(body: Mapping[str, Any], route: str | None) -> str:
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}, {f'route {route}' if route is not None else 'all routes'}"


def _end(word: str, sentence: str) -> NoReturn:
    typer.echo(f"specfleet {word}: {sentence}", err=True)
    raise typer.Exit(1)
