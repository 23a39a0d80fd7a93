"""vLLM: how a draft becomes its speculative config, and what is wrong with one. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, errors, warning
from specfleet.api.v1alpha1 import Draft, DraftMode, EngineType, SpecDeploymentSpec
from specfleet.engines.capabilities import CapabilityTable, Checkpoint, capabilities
from specfleet.engines.flags import Flag, Given
from specfleet.engines.nearest import meant
from specfleet.engines.vllm_arguments import given_flags
from specfleet.engines.vllm_tables import LORA_RULE_SINCE, OWNED_KEYS, PIPELINES_SINCE

SMALLEST_BATCHED_TOKENS = 2048
"""The least that `--max-num-batched-tokens` is by default when serving."""
_DRAFT = "spec.drafts[0]"
_SYNTHETIC = ("synthetic_acceptance_rate", "synthetic_acceptance_rates", "synthetic_acceptance_length")


class KeyKind(StrEnum):
    """How the text of a draft argument is read."""

    TEXT = "text"
    SWITCH = "true or false"
    NUMBER = "a number"
    NUMBERS = "a list of numbers"
    TRIPLES = "a list of [first batch size, last batch size, tokens]"
    INTEGER = "a whole number"
    OBJECT = "an object"


_KINDS: Mapping[str, KeyKind] = {
    "int": KeyKind.INTEGER,
    "bool": KeyKind.SWITCH,
    "float": KeyKind.NUMBER,
    "list[float]": KeyKind.NUMBERS,
    "list[tuple[int, int, int]]": KeyKind.TRIPLES,
    "LoadConfig": KeyKind.OBJECT,
}


def table() -> CapabilityTable:
    """The modes of vLLM."""
    return capabilities(EngineType.VLLM)


def key_kind(name: str, release: Version) -> KeyKind:
    """How a key's text is read, by its type in the release's source. Raises KeyError where it has no such key."""
    facts = {fact.name: fact.detail for fact in table().facts.of("keys", table().read(release))}
    return _KINDS.get(facts[name].removesuffix(" | None"), KeyKind.TEXT)


def key_choices(name: str, release: Version) -> tuple[str, ...]:
    """Values that a release takes for a key; empty where its source names none."""
    return tuple(fact.detail for fact in table().facts.of("choices", table().read(release)) if fact.name == name)


def speculative_config(spec: SpecDeploymentSpec, release: Version) -> str:
    """The JSON of `--speculative-config`. The spec must have passed `draft_findings` without errors."""
    draft = spec.draft
    method = table().method(draft.mode, release)
    assert method is not None
    config: dict[str, object] = {"method": method}
    if draft.model is not None:
        config["model"] = draft.model
    revision = _revision(spec)
    if revision is not None:
        config["revision"] = revision
    config["num_speculative_tokens"] = draft.tokens
    if draft.mode is DraftMode.NGRAM:
        config |= {"prompt_lookup_max": draft.ngram.max_match, "prompt_lookup_min": draft.ngram.min_match}
    if table().on_first_engine(draft.mode, release):
        config["disable_logprobs"] = False  # by default V0 would leave them out of the speculative pool's answers
    for name, text in sorted(draft.args.items()):
        plain = name.replace("-", "_")
        config[plain] = draft_value(plain, key_kind(plain, release), text)
    return json.dumps(config, separators=(",", ":"))


def _revision(spec: SpecDeploymentSpec) -> str | None:
    """The draft's; heads in the target are those of the target's revision, which vLLM would not take by itself."""
    draft, target = spec.draft, spec.rendered_target
    if draft.model is not None or table().of(draft.mode).checkpoint is not Checkpoint.TARGET:
        return draft.revision
    return None if target.model.startswith("/") else target.revision


def draft_findings(spec: SpecDeploymentSpec, release: Version, max_sequences: int) -> Iterator[Finding]:
    """What the release cannot do of a draft: its mode, its keys and their values, LoRA beside it.

    Args:
        release: one that is rendered, not newer than the tables.
        max_sequences: requests that one pod runs at once.
    """
    draft = spec.draft
    yield from _pipeline_findings(spec, release)
    unavailable = list(_mode_findings(draft, release))
    yield from unavailable
    if unavailable:
        return
    if table().on_first_engine(draft.mode, release):
        yield from _first_engine_findings(spec, release)
    package = table().of(draft.mode).package
    if package:
        yield warning(
            FindingReason.PACKAGE_NEEDED,
            f"{_DRAFT}.mode",
            f"mode {draft.mode} needs the Python package {package} in the image, and vLLM does not bring it: use an "
            "image that has it, or another mode",
        )
    yield from _lora_findings(spec, release, max_sequences)
    found = list(_args_findings(spec, release))
    yield from found
    if not errors(found):
        yield from _together_findings(spec, release)


def _args_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    draft = spec.draft
    for name, text in draft.args.items():
        path = f"{_DRAFT}.args[{name}]"
        plain = name.replace("-", "_")
        if plain in OWNED_KEYS:
            yield error(FindingReason.OWNED_DRAFT_ARG, path, f"specfleet sets {plain}: {OWNED_KEYS[plain]}")
        elif plain not in table().args_of(draft.mode, release):
            yield error(FindingReason.UNKNOWN_DRAFT_ARG, path, _unknown_key(plain, draft.mode, release))
        else:
            yield from _key_findings(plain, text, spec, release, path)


def _mode_findings(draft: Draft, release: Version) -> Iterator[Finding]:
    if table().method(draft.mode, release) is not None:
        return
    others = ", ".join(table().available(release))
    why = table().why_unusable(draft.mode, release)
    having = table().having(draft.mode)
    later = [version for version in having if version > release]
    use = f"vLLM {later[0]} or newer" if later else f"vLLM {having[-1]} or older"
    what = f"cannot do mode {draft.mode}: it {why}" if why else f"has no mode {draft.mode}"
    yield error(
        FindingReason.MODE_UNAVAILABLE,
        f"{_DRAFT}.mode",
        f"vLLM {release} {what}: use {use}, or one of {others}",
    )


def _pipeline_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    if spec.rendered_target.parallelism.pipeline == 1:
        return
    path = "spec.target.parallelism.pipeline"
    if release < PIPELINES_SINCE:
        yield error(
            FindingReason.INVALID_VALUE,
            path,
            f"vLLM {release} does not support speculation with pipeline parallelism: write tensor parallelism instead, "
            f"or use vLLM {PIPELINES_SINCE} or newer, where it may do",
        )
        return
    yield warning(
        FindingReason.UNTESTED_COMBINATION,
        path,
        "vLLM drafts on the last pipeline rank only, and long did not support speculation with pipeline "
        "parallelism: prefer tensor parallelism, or try it before relying on it",
    )


def _first_engine_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    mode = spec.draft.mode
    yield warning(
        FindingReason.NOTHING_TO_WATCH,
        f"{_DRAFT}.mode",
        f"vLLM {release} does mode {mode} on its V0 engine only, whose counters tell no acceptance, so nothing can be "
        f"decided by and every route stays where it begins; both pools run that engine: use "
        f"{_newer_engine(mode, release)}, or write speculation: Always or Never",
    )
    if spec.rendered_target.parallelism.data > 1:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.target.parallelism.data",
            f"the V0 engine of vLLM {release}, on which alone it does mode {mode}, serves one data-parallel rank: "
            f"write 1 and more replicas, or use {_newer_engine(mode, release)}",
        )


def _newer_engine(mode: DraftMode, release: Version) -> str:
    """The nearest release that does a mode on the V1 engine."""
    later = [one for one in table().having(mode) if one > release and not table().on_first_engine(mode, one)]
    return f"vLLM {later[0]} or newer"


def _given(spec: SpecDeploymentSpec, release: Version) -> dict[str, Given]:
    """The engine's flags by name, the last of each."""
    return {
        one.flag.name: one
        for one in given_flags(spec.engine, release)
        if isinstance(one, Given) and isinstance(one.flag, Flag)
    }


def _lora_findings(spec: SpecDeploymentSpec, release: Version, max_sequences: int) -> Iterator[Finding]:
    """With LoRA vLLM asks for room for every request's drafted tokens in one batch."""
    given = _given(spec, release)
    lora = given.get("enable-lora")
    if lora is None or lora.switched_off:
        return
    if table().on_first_engine(spec.draft.mode, release):
        yield error(
            FindingReason.CONFLICTING_FLAG,
            lora.path,
            f"vLLM {release} does mode {spec.draft.mode} on its V0 engine, which cannot have LoRA under speculation: "
            f"remove the flag, or use {_newer_engine(spec.draft.mode, release)}",
        )
        return
    if release < LORA_RULE_SINCE:
        return
    needed = max_sequences * (spec.draft.tokens + 1)
    batched = given.get("max-num-batched-tokens")
    tokens = _whole(batched.value) if batched is not None else None
    if tokens is not None and tokens < needed:
        yield error(
            FindingReason.CONFLICTING_FLAG,
            batched.path if batched is not None else lora.path,
            f"with LoRA, vLLM needs max-num-batched-tokens of at least max-num-seqs x (tokens + 1) = {max_sequences} x "
            f"{spec.draft.tokens + 1} = {needed}, found {tokens}: raise it, or lower max-num-seqs or drafts[].tokens",
        )
    elif batched is None and needed > SMALLEST_BATCHED_TOKENS:
        yield warning(
            FindingReason.UNTESTED_COMBINATION,
            lora.path,
            f"with LoRA, vLLM needs max-num-batched-tokens of at least {needed} here, and its default, by accelerator, "
            f"can be {SMALLEST_BATCHED_TOKENS}: write max-num-batched-tokens, or lower max-num-seqs",
        )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _unknown_key(name: str, mode: DraftMode, release: Version) -> str:
    offered = table().args_of(mode, release)
    takes = ", ".join(offered) or "none"
    known = table().facts.names("keys", table().read(release))
    why = table().not_offered.get(name)
    if why is not None and name in known:
        return f"{name} is not offered: {why}; remove it"
    if name in known:
        return f"{name} does nothing for mode {mode}: remove it; that mode takes {takes}"
    ever = [fact for fact in table().facts.sections["keys"] if fact.name == name]
    if ever:
        since, until = min(fact.since for fact in ever), max(fact.until for fact in ever)
        span = f"came with {since}" if since > release else f"went after {until}"
        return f"vLLM {release} does not know the key {name}, it {span}{f'; {why}' if why else ''}: remove it"
    hint = meant(name, offered, OWNED_KEYS, f"remove it; mode {mode} takes {takes}")
    return f"the speculative config of vLLM {release} has no key {name}: {hint}"


def _key_findings(name: str, text: str, spec: SpecDeploymentSpec, release: Version, path: str) -> Iterator[Finding]:
    kind, choices = key_kind(name, release), key_choices(name, release)
    if choices and text not in choices:
        yield error(
            FindingReason.INVALID_DRAFT_ARG, path, f"vLLM {release} takes one of {', '.join(choices)}, found {text!r}"
        )
        return
    try:
        value = draft_value(name, kind, text)
    except ValueError as problem:
        yield error(FindingReason.INVALID_DRAFT_ARG, path, str(problem))
        return
    lossy = name in table().lossy or text in table().lossy_choices.get(name, ())
    if lossy and not spec.draft.allow_lossy:
        yield error(
            FindingReason.LOSSY_NOT_ALLOWED,
            path,
            f"{name} {text} accepts drafts that the target would not have written: remove it, or write "
            "allowLossy: true",
        )
    if kind is KeyKind.TRIPLES:
        yield from _schedule_findings(value, spec, path)
    if name == "draft_tensor_parallel_size":
        yield from _parallelism_findings(value, spec, release, path)


def _parallelism_findings(value: object, spec: SpecDeploymentSpec, release: Version, path: str) -> Iterator[Finding]:
    tensor = spec.rendered_target.parallelism.tensor
    equal = spec.draft.mode is DraftMode.DRAFT_MODEL and not table().on_first_engine(spec.draft.mode, release)
    allowed = [tensor] if equal else sorted({1, tensor})
    if value not in allowed:
        yield error(
            FindingReason.INVALID_DRAFT_ARG,
            path,
            f"drafts of mode {spec.draft.mode} are split over {' or '.join(map(str, allowed))} accelerators here "
            f"(spec.target.parallelism.tensor is {tensor}), found {value}: remove it",
        )


def _schedule_findings(value: object, spec: SpecDeploymentSpec, path: str) -> Iterator[Finding]:
    if spec.rendered_target.parallelism.data > 1:
        yield error(
            FindingReason.INVALID_DRAFT_ARG,
            path,
            "vLLM ignores num_speculative_tokens_per_batch_size with data parallelism: remove one of the two",
        )
    assert isinstance(value, list)
    expected = 1
    for first, last, tokens in value:
        if first != expected and (expected == 1 or first < expected):
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                path,
                f"ranges must begin at 1 and not overlap, found one that begins at {first}",
            )
            return
        if last < first or not 0 <= tokens <= spec.draft.tokens:
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                path,
                f"a range is [first, last, tokens] with first <= last and tokens from 0 to {spec.draft.tokens} "
                f"(drafts[].tokens), found [{first}, {last}, {tokens}]",
            )
            return
        expected = last + 1
    yield warning(
        FindingReason.ENGINE_MANAGED,
        path,
        "the engine then changes the number of drafted tokens itself, and the policy judges what it sees: "
        "acceptance moves with load, not only with traffic",
    )


def _together_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Draft arguments that vLLM refuses beside each other."""
    args = {name.replace("-", "_"): text for name, text in spec.draft.args.items()}
    rates = [name for name in _SYNTHETIC if name in table().args_of(spec.draft.mode, release)]
    synthetic = [name for name in rates if name in args]
    chosen = args.get("rejection_sample_method") == "synthetic"
    if chosen != (len(synthetic) == 1) and (chosen or synthetic):
        yield error(
            FindingReason.INVALID_DRAFT_ARG,
            f"{_DRAFT}.args",
            f"rejection_sample_method synthetic goes with {'exactly one of ' if len(rates) > 1 else ''}"
            f"{' and '.join(rates)}, found {', '.join(synthetic) or 'none'}"
            f"{'' if chosen else ' without it'}: write both or neither",
        )
    if args.get("use_heterogeneous_vocab") == "true" and args.get("draft_sample_method") == "probabilistic":
        yield error(
            FindingReason.INVALID_DRAFT_ARG,
            f"{_DRAFT}.args",
            "use_heterogeneous_vocab drafts greedily only: remove draft_sample_method",
        )
    if args.get("disable_padded_drafter_batch") == "true":
        given = _given(spec, release).get("async-scheduling")
        if given is not None and not given.switched_off:
            yield error(
                FindingReason.CONFLICTING_FLAG,
                given.path,
                "vLLM refuses to start with --async-scheduling and disable_padded_drafter_batch: remove one of the two",
            )


def draft_value(name: str, kind: KeyKind, text: str) -> object:
    """The value of a draft argument, of the type that vLLM takes. Raises ValueError when the text is none."""
    if kind is KeyKind.TEXT:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not _is_kind(kind, value):
        raise ValueError(f"{name} is {kind}, written as JSON, found {text!r}")
    return value


def _is_kind(kind: KeyKind, value: object) -> bool:
    if kind is KeyKind.SWITCH:
        return isinstance(value, bool)
    if kind is KeyKind.INTEGER:
        return type(value) is int
    if kind is KeyKind.NUMBER:
        return type(value) in (int, float)
    if kind is KeyKind.OBJECT:
        return isinstance(value, dict)
    if not isinstance(value, list) or not value:
        return False
    if kind is KeyKind.NUMBERS:
        return all(type(item) in (int, float) for item in value)
    return all(isinstance(item, list) and len(item) == 3 and all(type(part) is int for part in item) for item in value)
