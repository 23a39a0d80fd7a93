"""Whether two models mean the same by a token id. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.preflight.bounded import shown
from specfleet.preflight.model import Model
from specfleet.preflight.tokenizer import Tokenizer
from specfleet.preflight.verdict import Check, Level, PreflightFinding

_NAMED_DIFFERENCES = 3


def tokenizer_findings(target: Model, draft: Model, level: Level) -> Iterator[PreflightFinding]:
    """What differs; a difference that makes ids mean other text has `level`.

    Tokens are named in the order of their ids, so that the first differing ones stand first.
    """
    ours, theirs = target.tokenizer, draft.tokenizer
    if ours is None or theirs is None:
        missing = [model for model in (target, draft) if model.tokenizer is None]
        if level is Level.ERROR and not any(model.findings for model in missing):
            names = " and ".join(str(model) for model in missing)
            yield _found(Level.UNKNOWN, f"no tokenizer file of the {names} was found: the two cannot be compared")
        return
    if ours.vocabulary is None or theirs.vocabulary is None:
        yield from _other_forms(target, ours, draft, theirs, level)
        return
    differing = list(_differences(ours.vocabulary, theirs.vocabulary))
    if differing:
        special = [one for one in differing if one[0] in ours.special or one[0] in theirs.special]
        # A special token ends or steers an answer: one of them says more than the first of many others.
        first = special if special and len(special) < len(differing) <= _NAMED_DIFFERENCES else differing
        told = "; ".join(_told(*one) for one in first[:_NAMED_DIFFERENCES])
        yield _found(
            level,
            f"the tokenizers of the {target} and the {draft} differ in {len(differing)} of "
            f"{max(len(ours.vocabulary), len(theirs.vocabulary))} tokens: {told}",
        )
    if ours.normalizer != theirs.normalizer:
        yield _found(level, f"the {target} and the {draft} normalise text in different ways (tokenizer.json)")
    if not differing:
        yield from _lesser(ours, theirs, target, draft)


def _differences(ours: object, theirs: object) -> Iterator[tuple[str, int | None, int | None]]:
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    if ours == theirs:
        return
    tokens = [token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)]

    def order(token: str) -> tuple[int, str]:
        numbers = [number for number in (ours.get(token), theirs.get(token)) if number is not None]
        return min(numbers), token

    for token in sorted(tokens, key=order):
        yield token, ours.get(token), theirs.get(token)


def _told(token: str, ours: int | None, theirs: int | None) -> str:
    def where(number: int | None) -> str:
        return "missing" if number is None else str(number)

    return f"{shown(token)} is {where(ours)} in the target, {where(theirs)} in the draft"


def _other_forms(
    target: Model, ours: Tokenizer, draft: Model, theirs: Tokenizer, level: Level
) -> Iterator[PreflightFinding]:
    """Files that are only compared as a whole: what is equal is equal, and what differs may still mean the same."""
    if any(theirs.raw.get(name) == digest for name, digest in ours.raw.items()):
        return
    if level is Level.ERROR:
        yield _found(
            Level.UNKNOWN,
            f"the tokenizers of the {target} and the {draft} are not the same file, and without tokenizer.json in both "
            "they cannot be compared token by token",
        )


def _lesser(ours: Tokenizer, theirs: Tokenizer, target: Model, draft: Model) -> Iterator[PreflightFinding]:
    flags = sorted(ours.special ^ theirs.special)
    if flags:
        yield _found(
            Level.WARNING,
            f"{shown(flags[0])} is a special token in one of {target} and {draft} only ({len(flags)} such tokens)",
        )
    for key in sorted(ours.named.keys() & theirs.named.keys()):
        if ours.named[key] != theirs.named[key]:
            yield _found(
                Level.WARNING,
                f"{key} is {shown(ours.named[key])} in the target, {shown(theirs.named[key])} in the draft; the engine "
                "goes by the target's",
            )
    if ours.splitting != theirs.splitting:
        yield _found(
            Level.WARNING,
            "target and draft split text into tokens in different ways (merges or pre-tokeniser): the draft may have "
            "been trained on other sequences, and less of it be accepted",
        )


def _found(level: Level, message: str) -> PreflightFinding:
    return PreflightFinding(Check.TOKENIZER, level, message)
