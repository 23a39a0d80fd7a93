"""vLLM: what is wrong with the flags, variables and draft arguments that a user wrote. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import replace

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import Draft, Engine, SpecDeploymentSpec
from specfleet.engines.flags import Given, Stray, Unresolved, arity_problem
from specfleet.engines.release import Minor
from specfleet.engines.vllm_tables import (
    LAST_WITHOUT_ASYNC_NGRAM,
    LAST_WITHOUT_PROCESSORS_NGRAM,
    NEWEST,
    NGRAM_KEYS,
    OTHER_MODES_KEYS,
    OWNED_ENV,
    OWNED_FLAGS,
    OWNED_KEYS,
    REFUSED_FIELDS,
    KeyKind,
    SpeculativeKey,
    flags_of,
)

CACHE_VARIABLES = frozenset({"HF_HOME", "VLLM_CACHE_ROOT"})
MOST_SEQUENCES = 1_000_000


def given_flags(engine: Engine, release: Minor) -> list[Given | Stray]:
    """Every flag of `args`, then of `extraArgs`, as the release's parser reads them."""
    table = flags_of(release)
    result: list[Given | Stray] = []
    for key, value in engine.args.items():
        path = f"spec.engine.args[{key}]"
        name = key.lstrip("-").split("=", 1)[0].strip()
        given = table.given(f"--{name}", path)
        short = table.given(f"-{name}", path)
        if isinstance(given.flag, Unresolved) and not isinstance(short.flag, Unresolved):
            if _owned(short) is not None:
                given = short
            elif given.flag is Unresolved.UNKNOWN:
                result.append(Stray(path, f"write the flag by its long name, {short.flag.name!r}"))
                continue
        if key != name and _owned(given) is None:
            result.append(Stray(path, f"write the flag without dashes, '=' and spaces: {name!r}"))
            continue
        result.append(replace(given, value=value or None))
    result.extend(table.read(engine.extra_args, "spec.engine.extraArgs"))
    return result


def flag_findings(spec: SpecDeploymentSpec, release: Minor, known_release: bool) -> Iterator[Finding]:
    """Flags that specfleet owns, that the release does not know, or that do not go with n-gram drafts.

    Args:
        known_release: False where the release is missing or newer than the tables; unknown flags are warnings then.
    """
    for given in given_flags(spec.engine, release):
        if isinstance(given, Stray):
            yield error(FindingReason.UNKNOWN_FLAG, given.path, given.message)
            continue
        owned = _owned(given)
        if owned is not None:
            yield error(FindingReason.OWNED_FLAG, given.path, f"specfleet sets {_shown(given)}: {owned}")
        elif given.flag is Unresolved.AMBIGUOUS:
            choices = ", ".join(given.candidates[:6])
            yield error(
                FindingReason.AMBIGUOUS_FLAG, given.path, f"{given.spelling} can stand for {choices}: write one in full"
            )
        elif given.flag is Unresolved.UNKNOWN:
            report = error if known_release else warning
            yield report(FindingReason.UNKNOWN_FLAG, given.path, _unknown_flag(given, release, known_release))
        else:
            yield from _value_findings(given, release)


def _owned(given: Given) -> str | None:
    if isinstance(given.flag, Unresolved):
        return None
    return OWNED_FLAGS.get(given.flag.name)


def _shown(given: Given) -> str:
    full = given.flag.spellings[0] if not isinstance(given.flag, Unresolved) else given.spelling
    return full if given.spelling == full else f"{full} (here as {given.spelling})"


def _unknown_flag(given: Given, release: Minor, known_release: bool) -> str:
    name = given.spelling.lstrip("-")
    close = difflib.get_close_matches(name, flags_of(release).names(), n=1)
    hint = f": did you mean {close[0]}?" if close else ": remove it, or set engine.version to a release that has it"
    whose = f"vLLM {release}" if known_release else f"vLLM {NEWEST}, the newest release that specfleet knows,"
    return f"{whose} does not know the flag {given.spelling}{hint}"


def _value_findings(given: Given, release: Minor) -> Iterator[Finding]:
    problem = arity_problem(given)
    if problem is not None:
        yield error(FindingReason.INVALID_FLAG_VALUE, given.path, problem)
        return
    name = given.flag.name if not isinstance(given.flag, Unresolved) else ""
    if name == "max-num-seqs" and sequences(given.value) is None:
        yield error(
            FindingReason.INVALID_FLAG_VALUE,
            given.path,
            f"max-num-seqs also sizes the router's limits: write a whole number from 1, found {given.value!r}",
        )
    if name == "async-scheduling" and not given.switched_off and release <= LAST_WITHOUT_ASYNC_NGRAM:
        yield error(
            FindingReason.CONFLICTING_FLAG,
            given.path,
            f"vLLM {release} refuses to start with --async-scheduling and n-gram drafts: remove the flag",
        )
    default = _refused_default(given) if name == "override-generation-config" else None
    if default is not None:
        yield error(
            FindingReason.CONFLICTING_FLAG,
            given.path,
            f"vLLM refuses {default} under speculation, so every request of the speculative pool would fail: remove it",
        )
    if name == "logits-processors" and release <= LAST_WITHOUT_PROCESSORS_NGRAM:
        yield error(
            FindingReason.CONFLICTING_FLAG,
            given.path,
            f"vLLM {release} refuses custom logits processors under speculation: remove the flag, "
            "or use vLLM 0.32.0 or newer",
        )


def _refused_default(given: Given) -> str | None:
    """A sampling default that would be refused under speculation for every request that does not set it itself."""
    if given.member:
        return given.member if given.member in REFUSED_FIELDS else None
    try:
        value = json.loads(given.value or "{}")
    except ValueError:
        return None
    found = [name for name in REFUSED_FIELDS if isinstance(value, dict) and value.get(name)]
    return found[0] if found else None


def sequences(text: str | None) -> int | None:
    """The value of `--max-num-seqs`; None where it is no whole number from 1."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return int(text) if 1 <= int(text) <= MOST_SEQUENCES else None


def env_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    """Variables that specfleet sets itself or relies on."""
    source = spec.rendered_target.source
    has_token = source is not None and source.hugging_face is not None and source.hugging_face.token_secret_ref
    for variable in spec.engine.env:
        path = f"spec.engine.env[{variable.name}]"
        reason = OWNED_ENV.get(variable.name)
        if variable.name == "VLLM_API_KEY" and variable.value is not None:
            yield error(
                FindingReason.OWNED_ENV,
                path,
                "a key in plain text is readable by all who may read this object: write valueFrom.secretKeyRef",
            )
        if reason is None or (variable.name == "HF_TOKEN" and not has_token):
            continue
        if variable.name in CACHE_VARIABLES and spec.pools.storage.cache is None:
            continue
        yield error(FindingReason.OWNED_ENV, path, f"{variable.name} is not yours to set: {reason}")


def draft_findings(draft: Draft, spec: SpecDeploymentSpec, release: Minor) -> Iterator[Finding]:
    """Keys of the speculative config that specfleet sets, that do nothing for n-gram drafts, or with a wrong value."""
    for name, text in draft.args.items():
        path = f"spec.drafts[0].args[{name}]"
        plain = name.replace("-", "_")
        key = NGRAM_KEYS.get(plain)
        if plain in OWNED_KEYS:
            yield error(FindingReason.OWNED_DRAFT_ARG, path, f"specfleet sets {plain}: {OWNED_KEYS[plain]}")
        elif key is None or key.since > release:
            yield error(FindingReason.UNKNOWN_DRAFT_ARG, path, _unknown_key(plain, key, release))
        else:
            yield from _key_findings(key, text, draft, spec, release, path)


def _unknown_key(name: str, key: SpeculativeKey | None, release: Minor) -> str:
    known = ", ".join(known.name for known in NGRAM_KEYS.values() if known.since <= release)
    if key is not None:
        return f"vLLM {release} does not know the key {name}, it came with {key.since}: remove it"
    if name in OTHER_MODES_KEYS:
        return f"{name} does nothing for mode NGram: remove it; what n-gram drafts take is {known}"
    return f"the speculative config of vLLM {release} has no key {name}: remove it; n-gram drafts take {known}"


def _key_findings(
    key: SpeculativeKey, text: str, draft: Draft, spec: SpecDeploymentSpec, release: Minor, path: str
) -> Iterator[Finding]:
    choices = key.choices_of(release)
    if choices and text not in choices:
        yield error(
            FindingReason.INVALID_DRAFT_ARG, path, f"vLLM {release} takes one of {', '.join(choices)}, found {text!r}"
        )
        return
    try:
        value = draft_value(key, text)
    except ValueError as problem:
        yield error(FindingReason.INVALID_DRAFT_ARG, path, str(problem))
        return
    if (key.lossy or text in key.lossy_choices) and not draft.allow_lossy:
        yield error(
            FindingReason.LOSSY_NOT_ALLOWED,
            path,
            f"{key.name} {text} accepts drafts that the target would not have written: remove it, or write "
            "allowLossy: true",
        )
    if key.kind is KeyKind.TRIPLES:
        yield from _schedule_findings(value, draft, spec, path)


def _schedule_findings(value: object, draft: Draft, spec: SpecDeploymentSpec, path: str) -> Iterator[Finding]:
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
        if last < first or not 0 <= tokens <= draft.tokens:
            yield error(
                FindingReason.INVALID_DRAFT_ARG,
                path,
                f"a range is [first, last, tokens] with first <= last and tokens from 0 to {draft.tokens} "
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


def draft_value(key: SpeculativeKey, text: str) -> object:
    """The value of a draft argument, of the type that vLLM takes. Raises ValueError when the text is none."""
    if key.kind is KeyKind.TEXT:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not _is_kind(key.kind, value):
        raise ValueError(f"{key.name} is {key.kind}, written as JSON, found {text!r}")
    return value


def _is_kind(kind: KeyKind, value: object) -> bool:
    if kind is KeyKind.INTEGER:
        return type(value) is int
    if kind is KeyKind.NUMBER:
        return type(value) in (int, float)
    if not isinstance(value, list) or not value:
        return False
    if kind is KeyKind.NUMBERS:
        return all(type(item) in (int, float) for item in value)
    return all(isinstance(item, list) and len(item) == 3 and all(type(part) is int for part in item) for item in value)
