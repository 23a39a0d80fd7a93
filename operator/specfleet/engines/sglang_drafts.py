"""SGLang: how a draft becomes its flags, and what is wrong with one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, errors, warning
from specfleet.api.v1alpha1 import DraftMode, NgramOptions, SpecDeploymentSpec
from specfleet.engines.capabilities import Checkpoint
from specfleet.engines.flags import Arity, Flag
from specfleet.engines.nearest import meant
from specfleet.engines.sglang_arguments import flags_of, last_flags
from specfleet.engines.sglang_tables import COUNTING_SINCE, OWNED_ARGS, SHARES, WHOLE_NUMBERS, table

_DRAFT = "spec.drafts[0]"
_TOPK, _SIZE, _BREADTH = "speculative-eagle-topk", "speculative-num-draft-tokens", "speculative-ngram-max-bfs-breadth"
_LEAST_BREADTH = "speculative-ngram-min-bfs-breadth"
_MOST_MATCH, _LEAST_MATCH = "speculative-ngram-max-match-window-size", "speculative-ngram-min-match-window-size"
_STEPPING = frozenset({DraftMode.DRAFT_MODEL, DraftMode.EAGLE, DraftMode.EAGLE3, DraftMode.MTP})


def speculative_args(spec: SpecDeploymentSpec, release: Version) -> tuple[str, ...]:
    """The flags of the speculative pool. The spec must have passed `draft_findings` without errors.

    k drafted tokens are `num-draft-tokens` k + 1: SGLang counts the token that the target already has.
    """
    draft, read = spec.draft, table().nearest(release)
    row = table().of(draft.mode)
    assert row is not None
    flags: dict[str, str] = {"speculative-algorithm": row.algorithm}
    if draft.model is not None:
        flags["speculative-draft-model-path"] = draft.model
    revision = _revision(spec)
    if revision is not None:
        flags["speculative-draft-model-revision"] = revision
    if draft.mode in _STEPPING:
        flags |= {"speculative-num-steps": str(draft.tokens), _TOPK: "1"}
    flags[_SIZE] = str(draft.tokens + 1)
    if draft.mode is DraftMode.NGRAM:
        flags |= {_LEAST_BREADTH: "1", _BREADTH: "1"}
        if table().knows(_MOST_MATCH, read):
            flags |= {_LEAST_MATCH: str(draft.ngram.min_match), _MOST_MATCH: str(draft.ngram.max_match)}
    given = {_plain(name): text for name, text in draft.args.items()}
    switches = [f"--{name}" for name, text in sorted(given.items()) if _is_switch(name, release) and text != "false"]
    values = flags | {name: text for name, text in sorted(given.items()) if not _is_switch(name, release)}
    return (*(f"--{name}={text}" for name, text in values.items()), *switches)


def _revision(spec: SpecDeploymentSpec) -> str | None:
    """The draft's; heads in the target are those of the target's revision, which SGLang would not take by itself."""
    draft, target = spec.draft, spec.rendered_target
    row = table().of(draft.mode)
    if draft.model is not None or row is None or row.checkpoint is not Checkpoint.TARGET:
        return draft.revision
    return None if target.model.startswith("/") else target.revision


def _plain(name: str) -> str:
    return name.replace("_", "-")


def _is_switch(name: str, release: Version) -> bool:
    flag, _ = flags_of(release).resolve(f"--{name}")
    return isinstance(flag, Flag) and flag.arity is Arity.NONE


def draft_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """What the release cannot do of a draft: its mode, its arguments, what stands beside it.

    Args:
        release: as stated; the facts of the nearest that was read hold.
    """
    unavailable = list(_mode_findings(spec, release))
    yield from unavailable
    if unavailable:
        return
    yield from _ngram_findings(spec, release)
    yield from _parallelism_findings(spec)
    found = list(_args_findings(spec, release))
    yield from found
    if not errors(found):
        yield from _tree_findings(spec, release)
        yield from _adaptive_findings(spec, release)
    if release < COUNTING_SINCE:
        yield warning(
            FindingReason.NOTHING_TO_WATCH,
            "spec.engine",
            f"SGLang {release} counts no verifications, so nothing can be decided by and every route stays where it "
            f"begins: use {COUNTING_SINCE} or newer, or write speculation: Always or Never",
        )


def _mode_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    mode, read = spec.draft.mode, table().nearest(release)
    if mode in table().available(read):
        return
    others = ", ".join(table().available(read))
    having = [one for one in table().having(mode) if one > read]
    if having:
        use = f"SGLang {release} has no mode {mode}: use SGLang {having[0]} or newer, or one of {others}"
    else:
        use = f"SGLang has mode {mode} in no release: use one of {others}, or vLLM"
    yield error(FindingReason.MODE_UNAVAILABLE, f"{_DRAFT}.mode", use)


def _ngram_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """From 0.5.10 on the engine has no window of matches."""
    draft, read = spec.draft, table().nearest(release)
    if draft.mode is not DraftMode.NGRAM or table().knows(_MOST_MATCH, read):
        return
    default = NgramOptions()
    if draft.ngram != default:
        yield error(
            FindingReason.INVALID_VALUE,
            f"{_DRAFT}.ngram",
            f"SGLang {release} has no shortest and longest match: remove ngram, and write drafts[0].args "
            "{speculative-ngram-max-trie-depth: ...} for how much text is looked up",
        )


def _parallelism_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    if spec.rendered_target.parallelism.pipeline > 1:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.target.parallelism.pipeline",
            "SGLang refuses speculation with pipeline parallelism: write tensor parallelism instead",
        )


def _args_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    draft, read = spec.draft, table().nearest(release)
    offered = table().args_of(draft.mode, read)
    for name, text in draft.args.items():
        path, plain = f"{_DRAFT}.args[{name}]", _plain(name.lstrip("-"))
        if plain in OWNED_ARGS or (plain == _SIZE and draft.mode not in _STEPPING):
            instead = OWNED_ARGS.get(plain, "write drafts[].tokens, which is this less one")
            yield error(FindingReason.OWNED_DRAFT_ARG, path, f"specfleet sets {plain}: {instead}")
        elif plain not in offered or name.startswith("-"):
            yield error(FindingReason.UNKNOWN_DRAFT_ARG, path, _unknown(plain, spec, release))
        else:
            yield from _value_findings(plain, text, spec, release, path)


def _unknown(name: str, spec: SpecDeploymentSpec, release: Version) -> str:
    mode, read = spec.draft.mode, table().nearest(release)
    offered = table().args_of(mode, read)
    if name in offered:
        return f"write it without dashes in front: {name}"
    facts = [fact for fact in table().facts.sections["flags"] if f"--{name}" in fact.name.split()]
    if any(fact.since <= read <= fact.until for fact in facts):
        return f"{name} is not offered for mode {mode}: remove it; that mode takes {', '.join(offered)}"
    if facts:
        since, until = min(fact.since for fact in facts), max(fact.until for fact in facts)
        span = f"came with {since}" if since > read else f"went after {until}"
        close = difflib.get_close_matches(name, offered, n=1)
        hint = f" or write {close[0]}" if close and close[0] != name else ""
        return f"SGLang {release} does not know {name}, it {span}: remove it{hint}"
    within = [one for one in offered if name in one]
    otherwise = f"did you mean {within[0]}?" if within else f"remove it; mode {mode} takes {', '.join(offered)}"
    hint = meant(name, offered, OWNED_ARGS, otherwise)
    return f"SGLang {release} has no flag {name} for drafts: {hint}"


def _value_findings(name: str, text: str, spec: SpecDeploymentSpec, release: Version, path: str) -> Iterator[Finding]:
    if _is_switch(name, release):
        if text not in ("", "true", "false"):
            yield error(FindingReason.INVALID_DRAFT_ARG, path, f'{name} is a switch: write "" for on, found {text!r}')
    elif not text:
        yield error(FindingReason.INVALID_DRAFT_ARG, path, f"{name} needs a value, found none")
    elif name in WHOLE_NUMBERS and not (text.isascii() and text.isdigit() and int(text) > 0):
        yield error(FindingReason.INVALID_DRAFT_ARG, path, f"{name} is a whole number from 1, found {text!r}")
    elif name in SHARES and not _is_share(text):
        yield error(FindingReason.INVALID_DRAFT_ARG, path, f"{name} is a number from 0 to 1, found {text!r}")
    elif name in table().lossy and float(text) < 1.0 and not spec.draft.allow_lossy:
        yield error(
            FindingReason.LOSSY_NOT_ALLOWED,
            path,
            f"{name} {text} accepts drafts that the target would not have written: remove it, or write "
            "allowLossy: true",
        )


def _is_share(text: str) -> bool:
    try:
        return 0.0 <= float(text) <= 1.0
    except ValueError:
        return False


def breadth(spec: SpecDeploymentSpec) -> int:
    """Drafts next to each other at one position; 1 for a chain, more for a tree."""
    name = _BREADTH if spec.draft.mode is DraftMode.NGRAM else _TOPK
    text = {_plain(key): value for key, value in spec.draft.args.items()}.get(name, "1")
    return int(text) if text.isascii() and text.isdigit() else 1


def _tree_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    draft, wide = spec.draft, breadth(spec)
    args = {_plain(name): text for name, text in draft.args.items()}
    size = int(args[_SIZE]) if _SIZE in args else None
    path = f"{_DRAFT}.args[{_SIZE}]"
    if wide == 1:
        if size is not None and size != draft.tokens + 1:
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                path,
                f"a chain of {draft.tokens} drafted tokens has {draft.tokens + 1} with its root, found {size}: remove "
                "it, or write speculative-eagle-topk above 1 for a tree",
            )
        return
    if draft.mode in _STEPPING:
        most = 1 + wide + (draft.tokens - 1) * wide * wide
        if size is None or not draft.tokens + 1 <= size <= most:
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                path,
                f"a tree of depth {draft.tokens} (drafts[].tokens) and breadth {wide} verifies {draft.tokens + 1} to "
                f"{most} tokens: write {_SIZE}, found {'none' if size is None else size}",
            )
    yield from _page_findings(spec, release)
    yield from _percentage_findings(spec)


def _page_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    last = last_flags(spec.engine, release)
    page, backend = last.get("page-size"), last.get("attention-backend")
    if page is None or page.value in (None, "1") or (backend is not None and backend.value == "flashinfer"):
        return
    yield error(
        FindingReason.CONFLICTING_FLAG,
        page.path,
        f"SGLang refuses trees with pages of {page.value} tokens but for the flashinfer backend: remove page-size, or "
        "write attention-backend: flashinfer",
    )


def _percentage_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    """Of a tree most tokens cannot be accepted, whatever the traffic, so their share says nothing."""
    places = [("spec.policy", spec.policy.min_acceptance_percent)]
    places += [
        (f"spec.routing.routes[{index}].policy", route.policy.min_acceptance_percent)
        for index, route in enumerate(spec.routing.routes)
        if route.policy is not None
    ]
    for path, percent in places:
        if percent is not None:
            yield error(
                FindingReason.INVALID_VALUE,
                f"{path}.minAcceptancePercent",
                "of a tree only one branch can be accepted, so accepted/drafted is low whatever the traffic: write "
                'breakEven {source: Fixed, tokensPerStep: "1.60"} instead',
            )


def _adaptive_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    args = {_plain(name): text for name, text in spec.draft.args.items()}
    if args.get("speculative-adaptive", "false") == "false":
        return
    path = f"{_DRAFT}.args[speculative-adaptive]"
    last = last_flags(spec.engine, release)
    for flag in ("enable-lora", "lora-paths", "enable-dp-attention", "enable-two-batch-overlap", "enable-pdmux"):
        if flag in last and not last[flag].switched_off:
            yield error(
                FindingReason.CONFLICTING_FLAG,
                last[flag].path,
                f"SGLang does not adapt its drafts beside {flag}: remove it, or speculative-adaptive",
            )
    if breadth(spec) > 1:
        yield error(
            FindingReason.INVALID_DRAFT_ARG, path, "SGLang adapts chains only: remove it, or speculative-eagle-topk"
        )
    yield warning(
        FindingReason.ENGINE_MANAGED,
        path,
        "the engine then changes the number of drafted tokens itself, down to none, and the policy judges what it "
        "sees: acceptance moves with load, not only with traffic",
    )
