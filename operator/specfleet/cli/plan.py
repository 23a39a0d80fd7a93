"""`specfleet plan`: how many sequences each pool has room for, what the draft costs, and what the second pool costs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from specfleet.api.findings import errors
from specfleet.api.v1alpha1 import EngineType, SpecDeployment
from specfleet.cli.documents import display_name, read_documents
from specfleet.cli.validate import SettingsOption, settings_or_end, text_or_end
from specfleet.preflight.bounded import FileProblem, parse_object
from specfleet.preflight.job import opener
from specfleet.preflight.reading import read_model
from specfleet.preflight.request import ModelRef
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings
from specfleet.sizing import sglang
from specfleet.sizing.accelerators import GIB, Accelerator, accelerator
from specfleet.sizing.answer import (
    PRODUCT_LABEL,
    Question,
    accelerator_of,
    answer,
    cpu_cache,
    draft_shape,
    question,
)
from specfleet.sizing.drafts import WITHOUT_CHECKPOINT
from specfleet.sizing.live import Comparison, LiveCache, compare, reported_tokens
from specfleet.sizing.plan import FleetPlan
from specfleet.sizing.quantities import bytes_of
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.report import Planned, document, notes_of, text
from specfleet.sizing.shape import ModelShape
from specfleet.sizing.started import Told, check_engine, uncounted

_DRAFTING = ("vllm:spec_decode_num_drafts", "sglang:spec_verify_calls")
_NO_ACCELERATOR = (
    "which accelerator the pods get is not written: give --accelerator, for instance H100-80GB, or --memory, for "
    f"instance 80Gi, or write pools.accelerator.product or memory, or a nodeSelector {PRODUCT_LABEL} in pools.template"
)


class Output(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class _Asked:
    """The options of one call."""

    models: Path | None
    config: Path | None
    draft_config: Path | None
    accelerator: str | None
    memory: str | None
    context: int | None
    utilisation: float | None
    overhead: str | None
    metrics: Path | None


def plan_command(
    filename: Annotated[str, typer.Option("--filename", "-f", help="YAML file; - is standard input.")],
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            help="Directory with the models' files: DIR/owner/name, DIR/<path of the model>, or a cache of the Hub's "
            "tools. Without it paths are read as they are, and other models from the Hub.",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The target's config.json itself.")] = None,
    draft_config: Annotated[Path | None, typer.Option("--draft-config", help="The draft's config.json.")] = None,
    accelerator_name: Annotated[
        str | None, typer.Option("--accelerator", "-a", help="Such as H100-80GB; its memory comes from a table.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", help="Memory of one accelerator as the engine sees it, such as 80Gi.")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", min=1, help="Tokens of a sequence, prompt and answer. Default: the most served."),
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option("--utilization", min=0.01, max=1.0, help="Share of the memory that the engine takes."),
    ] = None,
    overhead: Annotated[
        str | None,
        typer.Option("--overhead", help="Memory beside weights and KV cache on one accelerator. Default: 2.5Gi."),
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="Metrics page of a running pod, to compare the plan with.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Text, or JSON for programs.")] = Output.TEXT,
    settings: SettingsOption = None,
) -> None:
    """Say how many sequences each pool has room for, and what draft and second pool cost, before a GPU is taken.

    Reads config.json of target and draft, and the size of their weights where an index tells it. The exit status is 0
    where everything fits (warnings too), 1 where something does not, and 2 where the input cannot be read or a figure
    cannot be known.
    """
    asked = _Asked(models, config, draft_config, accelerator_name, memory, context, utilisation, overhead, metrics)
    deployments = _deployments(text_or_end("plan", filename), settings_or_end("plan", settings))
    if len(deployments) > 1 and (config or draft_config or metrics):
        _end(f"--config, --draft-config and --metrics are about one SpecDeployment, the input has {len(deployments)}")
    try:
        planned = [_planned(deployment, name, asked) for name, deployment in deployments]
    except (SizingProblem, FileProblem) as problem:
        _end(str(problem))
    if output is Output.JSON:
        typer.echo(json.dumps([document(one) for one in planned], indent=2))
    else:
        typer.echo("\n\n".join("\n".join(text(one)) for one in planned))
    if any(errors(list(one.plan.findings)) for one in planned):
        raise typer.Exit(1)


def _end(message: str) -> NoReturn:
    typer.echo(f"specfleet plan: {message}", err=True)
    raise typer.Exit(2)


def _deployments(content: str, settings: OperatorSettings) -> list[tuple[str, SpecDeployment]]:
    """The valid SpecDeployments of the input; ends the program where one is not."""
    found = read_documents(content)
    problems = [finding.line() for finding in found.findings]
    deployments = []
    for one in found.documents:
        deployment, findings = validate_document(one, settings)
        wrong = errors(findings)
        problems += [finding.line() for finding in wrong]
        if deployment is not None and not wrong:
            deployments.append((display_name(one), deployment))
    for line in problems:
        typer.echo(line, err=True)
    if problems:
        raise typer.Exit(2)
    if not deployments:
        _end("the input holds no SpecDeployment: is it the right file?")
    return deployments


def _planned(deployment: SpecDeployment, name: str, asked: _Asked) -> Planned:
    spec = deployment.spec
    if spec.external is not None:
        raise SizingProblem(f"{name}: External pools run already: their own report says what they have room for")
    check_engine(spec.engine.type)
    where = _accelerator(deployment, asked)
    questioned = question(deployment, where.memory_bytes)
    told = Told(
        memory_bytes=where.memory_bytes or None,
        cpu_cache=cpu_cache(deployment),
        context=asked.context,
        utilisation=asked.utilisation,
        overhead_bytes=bytes_of(asked.overhead) if asked.overhead is not None else None,
    )
    target = _target(deployment, asked)
    found = answer(
        questioned,
        target,
        _draft(deployment, target, asked),
        told,
        baseline_replicas=spec.pools.baseline_replicas,
        speculative_replicas=spec.pools.speculative_replicas,
    )
    planned = Planned(
        name=name,
        engine=f"{spec.engine.type} {questioned.release}",
        target_name=spec.rendered_target.model,
        target=found.target,
        draft_name=spec.draft.name,
        mode=questioned.mode,
        draft=found.draft,
        where=where.name,
        serving=found.serving,
        plan=found.plan,
        notes=(*notes_of(found.target, found.draft, found.serving), *_uncounted(questioned)),
    )
    return (
        planned
        if asked.metrics is None
        else replace(planned, live=_compared(found.plan, asked.metrics, spec.engine.type))
    )


def _uncounted(asked: Question) -> tuple[str, ...]:
    if asked.engine == EngineType.SGLANG:
        return sglang.uncounted(asked.flags)
    return uncounted(asked.arguments)


def _compared(plan: FleetPlan, page: Path, engine: EngineType) -> Comparison:
    content = _file(page).decode("utf-8", errors="replace")
    pool = plan.speculative if any(series in content for series in _DRAFTING) else plan.baseline
    return compare(pool.counted_tokens, [LiveCache(reported_tokens(content, engine), 1)])


def _accelerator(deployment: SpecDeployment, asked: _Asked) -> Accelerator:
    """What the pods run on: by option, or by the label that their nodes are selected by."""
    if asked.memory is not None:
        return Accelerator(asked.accelerator or f"accelerator with {asked.memory}", bytes_of(asked.memory))
    if asked.accelerator is not None:
        return accelerator(asked.accelerator)
    pools = deployment.spec.pools
    if not pools.accelerator.resource:
        return Accelerator("CPU", 0)
    found = accelerator_of(deployment)
    if found is None:
        raise SizingProblem(_NO_ACCELERATOR)
    return found


def _target(deployment: SpecDeployment, asked: _Asked) -> ModelShape:
    target = deployment.spec.rendered_target
    config, size, where = _read(ModelRef(target.model, target.revision), "target", asked.config, "--config", asked)
    return ModelShape.from_config(config, parameter_bytes=size, where=where)


def _draft(deployment: SpecDeployment, target: ModelShape, asked: _Asked) -> ModelShape | None:
    draft = deployment.spec.draft
    if draft.mode in WITHOUT_CHECKPOINT or draft.model is None:
        return None
    ref = ModelRef(draft.model, draft.revision)
    config, size, where = _read(ref, "draft", asked.draft_config, "--draft-config", asked)
    return draft_shape(draft.mode, config, target, size, where)


def _read(
    ref: ModelRef, role: str, given: Path | None, option: str, asked: _Asked
) -> tuple[Mapping[str, Any], int | None, str]:
    """config.json of a model, the bytes of its weights where they are known, and what to call the file."""
    if given is not None:
        return parse_object(_file(given), str(given)), None, str(given)
    where = f"config.json of the {role} {ref.model}"
    model = read_model(
        opener(os.environ, asked.models)(ref, role), ref, role, tensors=True, headers=False, tokenizer=False
    )
    if model.config is None:
        said = next((one.message for one in model.findings), f"the {role} {ref.model} has no config.json")
        raise SizingProblem(f"{said}: give {option} or --models")
    return model.config, model.tensors.total_bytes if model.tensors is not None else None, where


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(GIB // 64)
    except OSError as problem:
        raise SizingProblem(f"cannot read {path}: {problem.strerror or problem}") from None
