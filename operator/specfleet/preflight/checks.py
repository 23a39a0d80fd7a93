"""From two models and what the engine is to do with them to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.engines.capabilities import capabilities
from specfleet.engines.facts import DATA_FILES, EngineFactTable, engine_facts
from specfleet.engines.release import Minor
from specfleet.engines.sglang_tables import table as sglang_table
from specfleet.preflight.bounded import shown
from specfleet.preflight.heads import head_findings
from specfleet.preflight.lengths import length_findings
from specfleet.preflight.model import Fields, Model
from specfleet.preflight.request import PreflightRequest
from specfleet.preflight.verdict import Check, Level, PreflightFinding, Verdict
from specfleet.preflight.vocabulary import tokenizer_findings
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape

_NUMBER_FORMATS = ("auto", "half", "float16", "float", "float32", "bfloat16")
_ALIASES = {"auto-round": "inc"}
"""Methods of checkpoints that newer vLLM reads by another name (inc.py, override_quantization_method)."""
EQUAL_VOCABULARY = Minor(0, 15)
"""From here on vLLM refuses a draft model whose `vocab_size` is another than the target's."""
REFUSES_MIN_P = Minor(0, 14)
"""From here on vLLM answers requests with `min_p` with 400 under speculation."""


def judge(request: PreflightRequest, target: Model, draft: Model | None) -> Verdict:
    """The verdict about everything that was read; what could not be read is in it as unknown."""
    ours = Fields(target)
    theirs = Fields(draft) if draft is not None else None
    findings = [*target.findings, *(draft.findings if draft is not None else ())]
    if target.config is not None:
        findings += _target_findings(request, ours)
        if theirs is None:
            findings += head_findings(request, ours, None)
    if draft is not None and theirs is not None and draft.config is not None:
        findings += [*_number_format(theirs), *_quantization(request, theirs)]
        if target.config is not None:
            findings += head_findings(request, ours, theirs)
            findings += length_findings(request, ours, theirs)
            findings += _pair_findings(request, ours, theirs)
    if draft is not None and request.mode is not DraftMode.MTP and not request.heterogeneous_vocab:
        level = Level.ERROR if request.mode is DraftMode.DRAFT_MODEL else Level.WARNING
        findings += tokenizer_findings(target, draft, level)
    findings += ours.findings
    if theirs is not None:
        findings += theirs.findings
    return Verdict.of(list(dict.fromkeys(findings)))


def _target_findings(request: PreflightRequest, target: Fields) -> Iterator[PreflightFinding]:
    speculators = target.top.get("speculators_config")
    if speculators is not None:
        verifier = speculators.get("verifier") if isinstance(speculators, dict) else None
        name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
        told = shown(name) if isinstance(name, str) else "its verifier"
        yield PreflightFinding(
            Check.FORMAT,
            Level.ERROR,
            f"the {target.model} is a speculator (speculators format), with which vLLM speculates whatever its flags "
            f"say: write {told} as target.model and {shown(target.model.ref.model)} as drafts[].model",
        )
        return
    architectures = target.texts("architectures")
    if not architectures:
        yield PreflightFinding(
            Check.ARCHITECTURE,
            Level.ERROR,
            f"config.json of the {target.model} names no architectures: no engine can load it",
        )
    elif request.mode is DraftMode.EAGLE3 and request.engine is EngineType.VLLM:
        yield from _eagle3_target(request, target, architectures)
    else:
        yield from _architecture(request, target, architectures)
        yield from _mtp_target(request, target)
    yield from _quantization(request, target)
    yield from _number_format(target)
    yield from _generation(request, target.model)


def _eagle3_target(
    request: PreflightRequest, target: Fields, architectures: tuple[str, ...]
) -> Iterator[PreflightFinding]:
    """Up to 0.21 vLLM goes by words in `model_type`, then by what the class can do; facts of the released sources."""
    facts, release = _facts(request)
    words = facts.names("eagle3Targets", release)
    kind = target.text("model_type") or ""
    if words:
        if any(word in kind for word in words):
            return
        why = f"takes EAGLE-3 only for a model_type with one of {', '.join(sorted(words))}; found {shown(kind)}"
    else:
        able = facts.names("eagle3Models", release)
        if not able or any(one in able for one in architectures):
            return
        why = f"has no EAGLE-3 for {', '.join(shown(one) for one in architectures[:3])} (docs: reference/engines)"
    yield PreflightFinding(
        Check.ARCHITECTURE, Level.ERROR, f"vLLM {request.release} {why}: use another release, or another mode"
    )


def _mtp_target(request: PreflightRequest, target: Fields) -> Iterator[PreflightFinding]:
    """Before 0.11 vLLM takes MTP layers from the target itself only for some values of `model_type`."""
    if request.engine is not EngineType.VLLM or request.mode is not DraftMode.MTP or request.draft is not None:
        return
    release, table = Version(request.release), capabilities(EngineType.VLLM)
    kind = target.text("model_type") or ""
    lists = table.of(DraftMode.MTP).targets
    for listed in lists:
        if release in listed.releases and kind not in listed.types:
            yield PreflightFinding(
                Check.HEADS,
                Level.ERROR,
                f"vLLM {release} finds MTP layers only in a target of type {', '.join(listed.types)}; found "
                f"{shown(kind)}: use vLLM {table.after(lists[-1].releases)} or newer, or another mode",
            )


def _facts(request: PreflightRequest) -> tuple[EngineFactTable, Version]:
    """What the sources of a release say; of one that was not read, those of the nearest before it or the newest."""
    facts = engine_facts(request.engine)
    if request.engine is EngineType.SGLANG:
        return facts, sglang_table().nearest(Version(request.release))
    return facts, facts.nearest(Version(request.release))


def _architecture(
    request: PreflightRequest, fields: Fields, architectures: tuple[str, ...]
) -> Iterator[PreflightFinding]:
    """An engine may run what it has no class for by Transformers, or by a plug-in; so this refuses nothing."""
    if request.engine not in DATA_FILES:
        return
    facts, release = _facts(request)
    known = facts.names("architectures", release)
    if known and not any(one in known for one in architectures):
        yield PreflightFinding(
            Check.ARCHITECTURE,
            Level.WARNING,
            f"{request.engine} {release} has no class of its own for "
            f"{', '.join(shown(one) for one in architectures[:3])} of the {fields.model}: "
            "whether it runs rests on Transformers or a plug-in",
        )


def _quantization(request: PreflightRequest, fields: Fields) -> Iterator[PreflightFinding]:
    config = fields.part("quantization_config")
    method = config.get("quant_method")
    if not isinstance(method, str) or request.engine not in DATA_FILES:
        return
    facts, release = _facts(request)
    known = facts.names("quantizations", release)
    names = {_plain(method), _ALIASES.get(method, "")}
    if known and not names & {_plain(one) for one in known}:
        yield PreflightFinding(
            Check.NUMBER_FORMAT,
            Level.ERROR,
            f"the {fields.model} is quantised by {shown(method)}, and {request.engine} {release} knows "
            f"{', '.join(sorted(known))}: take one of those; with a plug-in for it in the image, write preflight: Warn",
        )


def _plain(method: str) -> str:
    return method.lower().replace("_", "-")


def _number_format(fields: Fields) -> Iterator[PreflightFinding]:
    found = fields.text("dtype", "torch_dtype")
    if found is not None and found.removeprefix("torch.") not in _NUMBER_FORMATS:
        yield PreflightFinding(
            Check.NUMBER_FORMAT,
            Level.ERROR,
            f"dtype of the {fields.model} is {shown(found)}, and engines take {', '.join(_NUMBER_FORMATS)}",
        )


def _generation(request: PreflightRequest, target: Model) -> Iterator[PreflightFinding]:
    """vLLM takes defaults of requests from generation_config.json, also ones that it refuses under speculation."""
    value = (target.generation or {}).get("min_p")
    if (
        request.engine is EngineType.VLLM
        and request.minor >= REFUSES_MIN_P
        and isinstance(value, int | float)
        and value
    ):
        yield PreflightFinding(
            Check.GENERATION,
            Level.WARNING,
            f"generation_config.json of the {target} sets min_p to {shown(value)}, and vLLM refuses requests with it "
            'under speculation: write engine.args generation-config: "vllm"',
        )


def _several_kinds(draft: Fields) -> bool:
    """Whether layers keep different things; of a model type that is not known, by what it says of its layers."""
    try:
        return ModelShape.from_config(draft.model.config or {}).hybrid
    except SizingProblem:
        return len(set(draft.texts("layer_types"))) > 1


def _pair_findings(request: PreflightRequest, target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    if request.mode is not DraftMode.DRAFT_MODEL:
        return
    architectures = draft.texts("architectures")
    yield from _architecture(request, draft, architectures) if architectures else ()
    if not architectures:
        yield PreflightFinding(
            Check.ARCHITECTURE,
            Level.ERROR,
            f"config.json of the {draft.model} names no architectures: it is no whole model; heads have modes of "
            "their own (Medusa, EAGLE, EAGLE3)",
        )
    if request.one_cache_group and _several_kinds(draft):
        yield PreflightFinding(
            Check.ARCHITECTURE,
            Level.ERROR,
            f"the {draft.model} has layers with windows or states beside full attention, and vLLM {request.release} "
            "drafts here only where all layers share their KV blocks: write engine.args "
            'disable-hybrid-kv-cache-manager: "", or take a draft whose layers are alike',
        )
    strict = request.engine is EngineType.VLLM and request.minor >= EQUAL_VOCABULARY
    ours, theirs = target.whole("vocab_size"), draft.whole("vocab_size")
    if strict and not request.heterogeneous_vocab and ours and theirs and ours != theirs:
        yield PreflightFinding(
            Check.VOCABULARY_SIZE,
            Level.ERROR,
            f"vocab_size is {ours} in the {target.model} and {theirs} in the {draft.model}, and vLLM "
            f"{request.release} starts only with equal ones, even where they differ by padding alone: take a draft of "
            'the same size, or from 0.25 on write drafts[].args use_heterogeneous_vocab: "true"',
        )
