"""What matters of a tokenizer: which text each id stands for, special tokens, and how text is normalised. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.preflight.bounded import FileProblem, kind_name, shown

MOST_TOKENS = 2_000_000
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class Tokenizer:
    """Facts about one tokenizer.

    Attributes:
        vocabulary: id by token, added tokens included; None where no file of a known form has it.
        special: tokens that are special (`added_tokens` with `special: true`).
        named: the special tokens that have a role, such as `eos_token`, as far as files say.
        normalizer: digest of the normaliser; None where there is none.
        splitting: digest of pre-tokeniser and merges.
        raw: digest of a file of another form (sentencepiece, tiktoken, vocab.json), by its name.
    """

    vocabulary: Mapping[str, int] | None
    special: frozenset[str]
    named: Mapping[str, str]
    normalizer: str | None
    splitting: str
    raw: Mapping[str, str]

    @property
    def size(self) -> int:
        """The least vocabulary that has every token."""
        return max(self.vocabulary.values(), default=-1) + 1 if self.vocabulary else 0


def parse_tokenizer(
    document: Mapping[str, Any] | None,
    configs: tuple[Mapping[str, Any], ...],
    raw: Mapping[str, bytes],
    what: str,
) -> Tokenizer:
    """From the parsed `tokenizer.json`, the parsed files beside it, and files that are only compared as a whole.

    Args:
        document: None where there is no tokenizer.json.
        configs: special_tokens_map.json and tokenizer_config.json, what stands later wins.
        raw: digests of files of other forms, by name.

    Raises:
        FileProblem: a file is malformed.
    """
    named = {key: token for config in configs for key, token in _named(config)}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in raw.items()}
    if document is None:
        return Tokenizer(None, frozenset(), named, None, "", digests)
    model = document.get("model")
    if not isinstance(model, dict):
        raise FileProblem(f"tokenizer.json of {what} has no model, found {kind_name(model)}")
    vocabulary = _vocabulary(model.get("vocab"), what)
    special = set()
    for entry in _list(document.get("added_tokens"), what):
        content, number = (entry.get("content"), entry.get("id")) if isinstance(entry, dict) else (None, None)
        if not isinstance(content, str) or not isinstance(number, int) or not _is_id(number):
            raise FileProblem(f"tokenizer.json of {what} has a malformed added token: {shown(entry)}")
        vocabulary[content] = number
        if entry.get("special") is True:
            special.add(content)
    splitting = _digest([document.get("pre_tokenizer"), model.get("type"), model.get("merges")])
    normalizer = document.get("normalizer")
    return Tokenizer(
        vocabulary,
        frozenset(special),
        named,
        None if normalizer is None else _digest(normalizer),
        splitting,
        digests,
    )


def _vocabulary(vocab: object, what: str) -> dict[str, int]:
    """BPE and WordPiece have a map, Unigram a list of token and score."""
    if isinstance(vocab, dict):
        if len(vocab) > MOST_TOKENS:
            raise FileProblem(f"tokenizer.json of {what} has {len(vocab)} tokens; the most is {MOST_TOKENS}")
        for token, number in vocab.items():
            if not _is_id(number):
                raise FileProblem(f"tokenizer.json of {what} gives token {shown(token)} the id {shown(number)}")
        return dict(vocab)
    found: dict[str, int] = {}
    for number, entry in enumerate(_list(vocab, what)):
        if not (isinstance(entry, list) and entry and isinstance(entry[0], str)):
            raise FileProblem(f"tokenizer.json of {what} has a malformed entry in its vocabulary: {shown(entry)}")
        found[entry[0]] = number
    return found


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_TOKENS


def _list(value: object, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MOST_TOKENS:
        raise FileProblem(f"tokenizer.json of {what} should have a list of tokens, found {kind_name(value)}")
    return value


def _named(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _NAMED:
        value = config.get(key)
        token = value.get("content") if isinstance(value, dict) else value
        if isinstance(token, str):
            yield key, token


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
