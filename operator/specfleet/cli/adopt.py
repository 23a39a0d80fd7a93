"""`specfleet adopt`: the SpecDeployment for engines that run already."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from specfleet.api.findings import errors
from specfleet.cli.adopting.document import Adopted
from specfleet.cli.adopting.external import external
from specfleet.cli.adopting.roles import one_role, two_roles
from specfleet.cli.adopting.scene import AdoptError, Scene, deployment_name, scene_of_text
from specfleet.cli.adopting.side import candidates, side_of
from specfleet.cli.adopting.split import SplitOptions, split
from specfleet.cli.validate import SettingsOption, settings_or_end, text_or_end
from specfleet.cluster.errors import ClusterError
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings


def adopt_command(
    deployment: Annotated[
        str | None,
        typer.Argument(help="deployment/NAME. With -f: not needed where the file has one engine.", show_default=False),
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option("--filename", "-f", help="Manifests to read instead of the cluster; - is standard input."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="deployment/NAME of the same engine without speculation: then both pools are known."),
    ] = None,
    split_pools: Annotated[
        bool,
        typer.Option("--split", help="Pools that specfleet runs itself, from the container's arguments."),
    ] = False,
    engine_version: Annotated[
        str | None,
        typer.Option(help="With --split: the release to run, where the image's tag names none or one too old."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the SpecDeployment. Default: the Deployment's.")] = None,
    container: Annotated[str | None, typer.Option(help="The engine's container, where a pod has several.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the current context or file.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig. Default: as kubectl.")] = None,
    settings: SettingsOption = None,
) -> None:
    """Print a SpecDeployment for a Deployment that serves already.

    Without --split nothing is restarted: specfleet adds a router before what runs, and in Observe moves nothing. The
    YAML goes to standard output, what could not be carried over to standard error too. The exit status is 0 with a
    SpecDeployment, 1 where there can be none, and 2 where the input or the settings cannot be read.
    """
    judged_by = settings_or_end("adopt", settings)
    if split_pools and baseline is not None:
        _end("--split makes both pools from one Deployment: leave out --baseline", 2)
    if engine_version is not None and not split_pools:
        _end("--engine-version is for --split: running engines keep their release", 2)
    options = SplitOptions(name, engine_version, judged_by)
    try:
        wanted = deployment_name(deployment) if deployment is not None else None
        other = deployment_name(baseline) if baseline is not None else None
        scene = _scene(filename, wanted, other, namespace, kubeconfig)
        chosen = wanted or _only(scene)
        adopted = (
            split(scene, side_of(scene, chosen, container), options)
            if split_pools
            else _external(scene, chosen, other, container, name)
        )
        _check(adopted, judged_by)
    except (AdoptError, ClusterError) as problem:
        _end(str(problem), 1)
    for note in adopted.notes:
        typer.echo(f"specfleet adopt: {note}", err=True)
    typer.echo(adopted.text(), nl=False)


def _scene(
    filename: str | None, wanted: str | None, other: str | None, namespace: str | None, kubeconfig: Path | None
) -> Scene:
    if filename is not None:
        shown = "standard input" if filename == "-" else filename
        return scene_of_text(text_or_end("adopt", filename), shown, namespace)
    if wanted is None:
        _end("expected deployment/NAME, or -f with a manifest", 2)
    # Imported here: a manifest needs no client of the API server, which takes half a second to load.
    from specfleet.cli.adopting.from_cluster import scene_of_cluster

    names = [one for one in (wanted, other) if one is not None]
    return asyncio.run(scene_of_cluster(names, namespace, kubeconfig))


def _only(scene: Scene) -> str:
    """The one Deployment in the input that runs an engine. Raises AdoptError."""
    found = candidates(scene)
    if len(found) == 1:
        return found[0]
    if found:
        raise AdoptError(
            f"{scene.where} has several Deployments that run an engine ({', '.join(found)}): name one, and the other "
            "one of a pair with --baseline"
        )
    for kind, name in scene.others:
        deployment_name(f"{kind}/{name}")
    names = ", ".join(str(one["metadata"].get("name")) for one in scene.deployments) or "none at all"
    raise AdoptError(f"{scene.where} has no Deployment that runs vLLM or SGLang; Deployments there are {names}")


def _external(scene: Scene, chosen: str, other: str | None, container: str | None, name: str | None) -> Adopted:
    side = side_of(scene, chosen, container)
    notes: list[str] = []
    speculative, baseline = (
        one_role(side, notes)
        if other is None
        else two_roles(side, side_of(scene, other, _same_container(scene, other, container)))
    )
    adopted = external(scene, speculative, baseline, name)
    return Adopted(adopted.manifest, adopted.comments, (*notes, *adopted.notes))


def _same_container(scene: Scene, deployment: str, container: str | None) -> str | None:
    """--container, where the second Deployment has one of that name too."""
    pod = scene.deployment(deployment)["spec"]["template"]["spec"]
    return container if any(one.get("name") == container for one in pod["containers"]) else None


def _check(adopted: Adopted, settings: OperatorSettings) -> None:
    """What is printed passes `validate`. Raises AdoptError."""
    _, findings = validate_document(adopted.manifest, settings)
    wrong = errors(findings)
    if wrong:
        said = "; ".join(f"{finding.path}: {finding.message}" for finding in wrong)
        raise AdoptError(f"what would be printed is no valid SpecDeployment: {said}")


def _end(sentence: str, code: int) -> NoReturn:
    typer.echo(f"specfleet adopt: {sentence}", err=True)
    raise typer.Exit(code)
