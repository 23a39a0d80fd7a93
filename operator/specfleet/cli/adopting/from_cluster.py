"""Reads the scene around a Deployment from a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from specfleet.cli.adopting.scene import AdoptError, Scene
from specfleet.cluster.auth import connect
from specfleet.cluster.client import ApiClient, Manifest
from specfleet.cluster.errors import ApiError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import DEPLOYMENT, SERVICE, SPEC_DEPLOYMENT, Kind


async def scene_of_cluster(names: Iterable[str], namespace: str | None, kubeconfig: Path | None) -> Scene:
    """The scene in a namespace of the cluster. Raises AdoptError and ClusterError."""
    connection = await connect(kubeconfig)
    where = namespace or connection.namespace
    async with connection.session() as session:
        client = ApiClient(session, connection.server, WriteGate())
        notes: list[str] = []
        wanted = []
        for name in names:
            one = await _get(client, where, name)
            if one is not None:
                wanted.append(one)
        services = await _list(client, SERVICE, where)
        try:
            deployments = await _list(client, DEPLOYMENT, where)
        except AdoptError:
            notes.append(
                f"Deployments of namespace {where} may not be listed by you: whether its Services select the pods of "
                "others too was not looked at"
            )
            deployments = wanted
        fleets = await _fleets(client, where)
    return Scene(
        f"namespace {where}", where, tuple(deployments), tuple(services), (), tuple(notes), tuple(fleets), live=True
    )


async def _fleets(client: ApiClient, namespace: str) -> list[Manifest]:
    """SpecDeployments; none where the kind is not installed yet or may not be seen."""
    try:
        return list((await client.read(SPEC_DEPLOYMENT.path(namespace))).get("items") or [])
    except ApiError:
        return []


async def _get(client: ApiClient, namespace: str, name: str) -> Manifest | None:
    try:
        return await client.get(DEPLOYMENT, namespace, name)
    except ApiError as error:
        raise _refused("get", DEPLOYMENT, namespace, error) from error


async def _list(client: ApiClient, kind: Kind, namespace: str) -> list[Manifest]:
    try:
        items = (await client.read(kind.path(namespace))).get("items") or []
    except ApiError as error:
        raise _refused("list", kind, namespace, error) from error
    return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]


def _refused(verb: str, kind: Kind, namespace: str, error: ApiError) -> AdoptError:
    if error.forbidden or error.status == 401:
        return AdoptError(
            f"you may not {verb} {kind.plural} in namespace {namespace}: ask for a role with get and list on "
            f"deployments and services there, or use -f with a manifest ({error.message or error})"
        )
    return AdoptError(f"{kind.plural} of namespace {namespace} cannot be read: {error.message or error}")
