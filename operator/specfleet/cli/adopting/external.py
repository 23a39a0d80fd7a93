"""A SpecDeployment for engines that stay as they are: External pools, Observe. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from specfleet.api.models import MODEL_ID, Target
from specfleet.api.names import endpoint
from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.cli.adopting.document import Adopted, free_name, manifest
from specfleet.cli.adopting.scene import AdoptError, Manifest, Scene
from specfleet.cli.adopting.side import Side, service_before
from specfleet.engines import vllm_tables
from specfleet.engines.flags import Flag
from specfleet.engines.release import parse_version

MOST_TOKENS = 32
_SERVED_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/-]*"
_MULTI_NODE = frozenset({"nnodes", "node-rank", "headless", "data-parallel-address", "dist-init-addr"})


def external(scene: Scene, speculative: Side | None, baseline: Side | None, name: str | None) -> Adopted:
    """External pools of one or two Deployments. Raises AdoptError."""
    sides = {"speculative": speculative, "baseline": baseline}
    given = {role: side for role, side in sides.items() if side is not None}
    first = next(iter(given.values()))
    notes = list(scene.notes)
    engines = {side.engine for side in given.values()}
    if len(engines) > 1:
        raise AdoptError("one Deployment runs vLLM, the other SGLang: both pools must run the same engine and model")
    services = {role: service_before(scene, side, notes) for role, side in given.items()}
    names = {service.name for service in services.values()}
    if len(names) < len(services):
        raise AdoptError(f"both Deployments are behind Service {min(names)}: each pool needs a Service of its own")
    spec: dict[str, Any] = {"engine": _engine(list(given.values()), notes)}
    target = _target(list(given.values()), notes)
    if target:
        spec["target"] = target
    draft = _draft(speculative, notes)
    if draft:
        spec["drafts"] = [draft]
    spec["pools"] = {
        "strategy": "External",
        "external": {role: {"service": service.name, "port": service.port} for role, service in services.items()},
    }
    # What there is to observe is seen only where requests reach speculation.
    spec["policy"] = {"enforcement": "Observe"} | ({"initial": "Speculative"} if speculative is not None else {})
    for side in given.values():
        notes += _missing(side, speculating=side is speculative)
        notes += [f"{side.name}: {problem}" for problem in side.read.problems]
    if speculative is None:
        notes.append(
            f"{first.name} does not speculate, so there is no acceptance to see: run a second Deployment with "
            f"speculation and adopt it with --baseline deployment/{first.name}"
        )
    chosen = free_name(name, first.name, (), scene, lambda fleet: bool(names & _services(fleet)))
    return Adopted(manifest(chosen, scene.namespace, spec), tuple(_comments(scene, given, chosen)), tuple(notes))


def _services(fleet: Manifest) -> set[str]:
    """Services that an External SpecDeployment names."""
    pools = (fleet.get("spec") or {}).get("pools") or {}
    return {str(side.get("service")) for side in (pools.get("external") or {}).values()}


def _comments(scene: Scene, given: dict[str, Side], name: str) -> Iterator[str]:
    what = " and ".join(f"deployment/{side.name} as {role}" for role, side in given.items())
    yield f"Adopted from {scene.where}: {what}. No pod of these is changed or restarted."
    where = endpoint(name, scene.namespace or "NAMESPACE")
    yield f"Nothing is different for clients until they use {where}; enforcement Observe moves nothing."
    yield "To see what would be decided, add a line to decide by: policy.minAcceptancePercent or policy.breakEven."


def _engine(sides: list[Side], notes: list[str]) -> dict[str, Any]:
    engine: dict[str, Any] = {"type": sides[0].engine.value}
    releases = sorted({side.read.release_hint or "" for side in sides})
    if releases == [""]:
        notes.append("the images' tags name no release: the operator reads it from the pods, else write engine.version")
    elif len(releases) == 1:
        engine["version"] = releases[0]
    else:
        shown = " and ".join(f"{side.name} {side.read.release_hint or 'an unknown release'}" for side in sides)
        notes.append(f"the pools run different releases ({shown}): figures of the two do not compare well")
    return engine


def _target(sides: list[Side], notes: list[str]) -> dict[str, Any]:
    """The model and the name that clients send, where both sides agree."""
    known = [side for side in sides if side.served_names]
    if len(known) == 2:
        common = [name for name in known[0].served_names if name in known[1].served_names]
        if not common:
            first, second = (", ".join(side.served_names) for side in known)
            notes.append(
                f"the pools serve different names ({known[0].name}: {first}; {known[1].name}: {second}): a request "
                "that moves would be answered with 404; give both the same --served-model-name before Enforce"
            )
            return {}
    elif not known:
        return {}
    else:
        common = list(known[0].served_names)
    models = {side.read.model for side in known}
    if len(models) > 1:
        notes.append(f"the pools serve different models ({', '.join(sorted(map(str, models)))}): is it the same model?")
    model = str(known[0].read.model)
    if not re.fullmatch(MODEL_ID, model) or ".." in model:
        notes.append(
            f"the model {model} is neither an id such as owner/name nor a path, so target is left out; routes can then "
            "not match by model alias"
        )
        return {}
    target = {"model": model}
    if re.fullmatch(_SERVED_NAME, common[0]) and len(common[0]) <= _longest_name():
        target["servedName"] = common[0]
    return target


def _longest_name() -> int:
    for rule in Target.model_fields["served_name"].metadata:
        found = getattr(rule, "max_length", None)
        if found is not None:
            return int(found)
    return 253


def _draft(side: Side | None, notes: list[str]) -> dict[str, Any] | None:
    """What the speculative pool's arguments say of its drafts."""
    if side is None or side.read.shell:
        return None
    mode, tokens = side.read.mode, side.read.draft_tokens
    if mode not in {one.value for one in DraftMode}:
        notes.append(
            f"how {side.name} makes drafts is decided by its draft model's own configuration: drafts is left out, and "
            "the pool is called speculative"
        )
        return None
    draft: dict[str, Any] = {"name": mode.lower(), "mode": mode}
    if tokens is not None and 1 <= tokens <= MOST_TOKENS:
        draft["tokens"] = tokens
    else:
        said = "no argument says" if tokens is None else f"its arguments say {tokens}, a tree"
        notes.append(
            f"how many tokens {side.name} drafts a round: {said}; write drafts[0].tokens (at most {MOST_TOKENS}) if "
            "the default of 4 is wrong"
        )
    return draft


def _missing(side: Side, *, speculating: bool) -> Iterator[str]:
    """Arguments that the figures need."""
    read = side.read
    if read.shell:
        yield f"{side.name}: its arguments cannot be read, so the operator goes by the pods' metrics"
        return
    if not read.metrics:
        line = "--enable-metrics" if side.engine is EngineType.SGLANG else "no --disable-log-stats"
        yield f"{side.name} has no metrics page: start it with {line}"
    if speculating and side.engine is EngineType.VLLM and not read.figures_per_request:
        version = parse_version(read.release_hint or "")
        if version is not None and not vllm_tables.has_figures(version):
            yield (
                f"{side.name}: vLLM {version} puts no acceptance figures into answers (it came with "
                f"{vllm_tables.FIGURES_SINCE}), so all routes are decided together"
            )
        else:
            yield (
                f"{side.name}: add the argument --per-request-spec-decode-metrics=summary; without it no answer says "
                "how much was accepted, and all routes are decided together"
            )
    if speculating and side.engine is EngineType.SGLANG:
        yield f"{side.name}: SGLang's answers hold no acceptance figures, so all routes are decided together"
    if read.usage_forced:
        yield f"{side.name}: --enable-force-include-usage puts usage on every chunk, for clients that did not ask too"
    if read.max_sequences is None:
        flag = "--max-running-requests" if side.engine is EngineType.SGLANG else "--max-num-seqs"
        role = "speculative" if speculating else "baseline"
        yield (
            f"{side.name}: no {flag} says how many requests a pod runs at once; add it, or write it as "
            f"pools.external.{role}.maxSequences"
        )
    spread = sorted({one.flag.name for one in read.given if isinstance(one.flag, Flag)} & _MULTI_NODE)
    if spread:
        yield (
            f"{side.name}: one engine spans several pods ({', '.join('--' + flag for flag in spread)}): the Service "
            "must select only the pods that answer HTTP"
        )
