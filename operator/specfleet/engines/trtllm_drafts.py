"""TensorRT-LLM: how a draft becomes its speculative config, and what is wrong with one. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, errors, warning
from specfleet.api.v1alpha1 import DraftMode, NgramOptions, SpecDeploymentSpec, Speculation
from specfleet.engines.nearest import meant
from specfleet.engines.trtllm_tables import (
    COUNTING_SINCE,
    HUB_DRAFTS_SINCE,
    OWNED_ARGS,
    SAMPLING_KEY_UNTIL,
    TrtllmMode,
    table,
)

_DRAFT = "spec.drafts[0]"
_SCHEDULE, _CONCURRENCY, _SAMPLING = "draft_len_schedule", "max_concurrency", "allow_advanced_sampling"
_RATES = frozenset({"acceptance_rate_threshold"})
_ALTERNATIVES = {
    DraftMode.MEDUSA: "TensorRT-LLM's PyTorch backend has no Medusa, and the TensorRT engine backend is not rendered",
    DraftMode.EAGLE: "TensorRT-LLM's PyTorch backend reads EAGLE-3 heads only",
    DraftMode.SUFFIX: "TensorRT-LLM has suffix automata (SA) in later candidates, which are not offered",
}


class _Wrong(Exception):
    """Why a value cannot be taken, as the end of a sentence."""


def speculative_config(spec: SpecDeploymentSpec, release: Version) -> dict[str, Any]:
    """The speculative config of the speculative pool. The spec must have passed `draft_findings` without errors."""
    draft = spec.draft
    row, kind = table().of(draft.mode), table().type_of(draft.mode, release)
    assert row is not None
    assert kind is not None
    config: dict[str, Any] = {"decoding_type": kind, row.tokens_key(release): draft.tokens}
    if draft.model is not None:
        config["speculative_model" if release >= HUB_DRAFTS_SINCE else "speculative_model_dir"] = draft.model
    if draft.mode is DraftMode.NGRAM:
        config["max_matching_ngram_size"] = draft.ngram.max_match
    if samples_by_key(row, release):
        config[_SAMPLING] = True
    for name, text in sorted(draft.args.items()):
        detail = table().key_detail(name, draft.mode, release)
        assert detail is not None
        config[name] = _value(text, detail)
    return config


def samples_by_key(row: TrtllmMode, release: Version) -> bool:
    """Whether requests' sampling parameters hold under speculation only with a key that this release has."""
    known = table().key_detail(_SAMPLING, row.mode, release) is not None
    return known and release <= SAMPLING_KEY_UNTIL and row.one_model is not None and release >= row.one_model


def draft_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """What the release cannot do of a draft: its mode, its model, its arguments, what stands beside it."""
    unavailable = list(_mode_findings(spec, release))
    yield from unavailable
    if unavailable:
        return
    yield from _ngram_findings(spec)
    yield from _model_findings(spec, release)
    yield from _parallelism_findings(spec)
    found = list(_args_findings(spec, release))
    yield from found
    if not errors(found):
        yield from _managed_findings(spec, release)
    yield from _release_findings(spec, release)


def _mode_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    mode, path = spec.draft.mode, f"{_DRAFT}.mode"
    if table().type_of(mode, release) is not None:
        return
    others = ", ".join(table().available(release))
    having = table().having(mode)
    if not having:
        said = f"{_ALTERNATIVES[mode]}: use one of {others}, or vLLM"
    elif release < having[0]:
        said = f"TensorRT-LLM {release} has no mode {mode}: use {having[0]} or newer, or one of {others}"
    else:
        around = [one for one in having if one < release][-1:] + [one for one in having if one > release][:1]
        said = (
            f"mode {mode} was renamed before or after TensorRT-LLM {release}, and specfleet does not know which: use "
            f"{' or '.join(str(one) for one in around)}, or one of {others}"
        )
    yield error(FindingReason.MODE_UNAVAILABLE, path, said)


def _ngram_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    draft = spec.draft
    if draft.mode is DraftMode.NGRAM and draft.ngram.min_match != NgramOptions().min_match:
        yield error(
            FindingReason.INVALID_VALUE,
            f"{_DRAFT}.ngram.minMatch",
            "TensorRT-LLM has a longest match only: remove minMatch, and write ngram.maxMatch",
        )


def _model_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    draft = spec.draft
    if draft.revision is not None:
        yield error(
            FindingReason.INVALID_VALUE,
            f"{_DRAFT}.revision",
            "TensorRT-LLM takes the default branch of a draft, whatever is asked: put that revision on a volume and "
            "write its path as model, or remove revision",
        )
    if draft.model is not None and not draft.model.startswith("/") and release < HUB_DRAFTS_SINCE:
        yield error(
            FindingReason.INVALID_VALUE,
            f"{_DRAFT}.model",
            f"TensorRT-LLM {release} downloads no draft: put it on a volume and write its path as model, or use "
            f"{HUB_DRAFTS_SINCE} or newer",
        )
    if draft.model is not None and draft.mode is DraftMode.MTP:
        yield error(
            FindingReason.INVALID_VALUE,
            f"{_DRAFT}.model",
            "TensorRT-LLM takes MTP layers from the target's own checkpoint: remove model",
        )


def _parallelism_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    parallelism = spec.rendered_target.parallelism
    if parallelism.pipeline > 1:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.target.parallelism.pipeline",
            "TensorRT-LLM does not speculate with pipeline parallelism: write tensor parallelism instead",
        )
    if parallelism.data > 1:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.target.parallelism.data",
            "TensorRT-LLM has no data-parallel size: write tensor parallelism, with enable_attention_dp: true in "
            "spec.engine.config for attention by data, or more pools.replicas",
        )


def _args_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    draft = spec.draft
    offered = table().args_of(draft.mode, release)
    for name, text in draft.args.items():
        path, plain = f"{_DRAFT}.args[{name}]", name.strip().lower().replace("-", "_")
        if plain in OWNED_ARGS:
            yield error(FindingReason.OWNED_DRAFT_ARG, path, f"specfleet sets {plain}: {OWNED_ARGS[plain]}")
        elif name not in offered:
            yield error(FindingReason.UNKNOWN_DRAFT_ARG, path, _unknown(name, plain, spec, release))
        else:
            yield from _value_findings(name, text, spec, release, path)


def _unknown(name: str, plain: str, spec: SpecDeploymentSpec, release: Version) -> str:
    mode = spec.draft.mode
    offered = table().args_of(mode, release)
    takes = f"mode {mode} takes {', '.join(offered)}" if offered else f"mode {mode} takes none in this release"
    if plain in offered:
        return f"TensorRT-LLM writes it with '_' and in lower case: write {plain}"
    if plain in table().not_offered:
        return f"{plain} is not offered, since {table().not_offered[plain]}: remove it; {takes}"
    row = table().of(mode)
    belongs = row is not None and plain in (*row.args, *table().common_args)
    spans = table().key_spans(plain, mode)
    if belongs and spans:
        close = difflib.get_close_matches(plain, offered, n=1)
        hint = f", or write {close[0]}" if close else ""
        return f"TensorRT-LLM {release} is not known to have {plain}, which {spans} had: remove it{hint}"
    others = [one for one in table().modes if plain in one.args]
    if others:
        return f"{plain} belongs to mode {others[0].mode}: remove it; {takes}"
    hint = meant(plain, offered, OWNED_ARGS, f"remove it; {takes}")
    return f"TensorRT-LLM {release} has no key {name} in its speculative config: {hint}"


def _value_findings(name: str, text: str, spec: SpecDeploymentSpec, release: Version, path: str) -> Iterator[Finding]:
    detail = table().key_detail(name, spec.draft.mode, release)
    assert detail is not None
    try:
        value = _value(text, detail)
        _check_value(name, value)
    except _Wrong as wrong:
        yield error(FindingReason.INVALID_DRAFT_ARG, path, f"{name} {wrong}, found {text[:60]!r}")
        return
    if name in table().lossy and value not in (False, 0, 1) and not spec.draft.allow_lossy:
        yield error(
            FindingReason.LOSSY_NOT_ALLOWED,
            path,
            f"{name} accepts drafts that the target would not have written: remove it, or write allowLossy: true",
        )


def _value(text: str, detail: str) -> Any:
    """The value of a key by the type that its release gives it.

    Raises:
        _Wrong: it has another.
    """
    if detail == "str":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _Wrong(_expected(detail)) from None
    if detail == "bool" and isinstance(value, bool):
        return value
    if detail == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if detail == "float" and isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e9:
        return float(value)
    if detail == "list[int]" and isinstance(value, list) and all(type(one) is int for one in value) and value:
        return value
    if detail.startswith("dict[int, int]") and isinstance(value, dict) and _is_schedule(value):
        return {int(key): one for key, one in sorted(value.items(), key=lambda item: int(item[0]))}
    raise _Wrong(_expected(detail))


def _is_schedule(value: dict[str, Any]) -> bool:
    keys = all(key.isascii() and key.isdigit() and len(key) <= 9 for key in value)
    return bool(value) and keys and all(type(one) is int for one in value.values())


_EXPECTED = {
    "bool": "is true or false",
    "int": "is a whole number",
    "float": "is a number",
    "list[int]": "is a list of whole numbers such as [1, 2]",
    "dict[int": 'is numbers of drafted tokens by batch size such as {"1": 4, "8": 2}',
}


def _expected(detail: str) -> str:
    return _EXPECTED[detail.split(",")[0]]


def _check_value(name: str, value: Any) -> None:
    choices = table().choices.get(name)
    if choices is not None and value not in choices:
        raise _Wrong(f"is one of {', '.join(choices)}")
    if name in _RATES and not 0.0 <= value <= 1.0:
        raise _Wrong("is a share from 0 to 1")
    if name in table().gate and name not in _RATES and value < 0:
        raise _Wrong("is not below 0")
    if name == _CONCURRENCY and value < 1:
        raise _Wrong("is a whole number from 1")


def _managed_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Keys by which the engine itself drafts less or stops, and what has to hold between them."""
    args, path = spec.draft.args, f"{_DRAFT}.args"
    detail = table().key_detail(_SCHEDULE, spec.draft.mode, release) or ""
    if _SCHEDULE in args:
        schedule = _value(args[_SCHEDULE], detail)
        first = min(schedule)
        wrong = first < 1 or schedule[first] != spec.draft.tokens or max(schedule.values()) > spec.draft.tokens
        if wrong or min(schedule.values()) < 0 or ("from" in detail and first != 1):
            begins = "begins with batch size 1" if "from" in detail else "begins with the smallest batch"
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                f"{path}[{_SCHEDULE}]",
                f"the schedule {begins}, which drafts all {spec.draft.tokens} tokens, and drafts no more anywhere",
            )
        if _CONCURRENCY in args and "up to" in detail:
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                f"{path}[{_CONCURRENCY}]",
                f"TensorRT-LLM {release} takes {_SCHEDULE} or {_CONCURRENCY}, not both: remove one",
            )
    for name in sorted(set(args) & table().scheduling):
        yield warning(
            FindingReason.ENGINE_MANAGED,
            f"{path}[{name}]",
            "the engine then drafts less, or nothing, by the size of its batch, and the policy judges what it sees: "
            "acceptance moves with load, not only with traffic",
        )
    gate = sorted(set(args) & table().gate)
    if gate:
        yield warning(
            FindingReason.ENGINE_MANAGED,
            f"{path}[{gate[0]}]",
            "the engine's gate stops drafting for good, until the pod restarts, and no exploration finds out that it "
            "would pay again: the policy does the same by route, and comes back; prefer policy.minAcceptancePercent",
        )


def _release_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    row = table().of(spec.draft.mode)
    if row is not None and row.one_model is not None and row.one_model <= release < HUB_DRAFTS_SINCE:
        yield warning(
            FindingReason.UNTESTED_COMBINATION,
            f"{_DRAFT}.mode",
            f"TensorRT-LLM {release} is not known to follow requests' sampling parameters with mode {row.mode}: use "
            f"{HUB_DRAFTS_SINCE} or newer where clients send a temperature",
        )
    decided = any(route.speculation is Speculation.AUTO for route in spec.routing.routes)
    if release < COUNTING_SINCE and decided:
        yield warning(
            FindingReason.NOTHING_TO_WATCH,
            "spec.engine",
            f"TensorRT-LLM {release} counts no drafts on its Prometheus page, so nothing can be decided by and every "
            f"route stays where it begins: use {COUNTING_SINCE} or newer, or write speculation: Always or Never",
        )


def suppresses(spec: SpecDeploymentSpec) -> str | None:
    """What can make this engine stop drafting, as a sentence about what to do; None where it stops by what it reads."""
    gate = sorted(set(spec.draft.args) & table().gate)
    if gate:
        return (
            f"its own gate ({', '.join(gate)}) holds until the pod restarts: restart the pods, and remove the gate "
            "from drafts[0].args to leave the decision to the policy"
        )
    if set(spec.draft.args) & table().scheduling:
        return "drafts[0].args let it draft nothing at large batches"
    if spec.draft.mode is DraftMode.NGRAM:
        return None
    return "nothing in drafts[0].args asks for that: look at the engine's log"
