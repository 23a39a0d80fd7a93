"""SGLang by release: its draft modes, and what specfleet owns of its flags. Read in the released sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import yaml
from packaging.version import Version

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.engines.capabilities import Checkpoint
from specfleet.engines.facts import EngineFactTable, engine_facts

OLDEST = Version("0.5.2")
"""The first release that is rendered: before it a draft model has no revision."""
COUNTING_SINCE = Version("0.5.13")
"""The first release that counts verifications, on which decisions rest."""
ROUTE_LABEL = "route"
"""The label by which the engine counts, from the router's header `x-custom-labels`."""

_SPECULATION = "speculation is described by spec.drafts, and only the speculative pool gets it"
_ONE_POD = "one engine pod is one replica: write spec.target.parallelism"
_NO_TLS = "the router speaks plain HTTP to the engines; TLS for clients is the work of a Gateway before the router"
_LABELS = "remove it: the router sends the route's name, by which the engine has to count"

OWNED_FLAGS: Mapping[str, str] = {
    "model-path": "write spec.target.model",
    "model": "write spec.target.model",
    "served-model-name": "write spec.target.servedName; further aliases are routes with match.model",
    "revision": "write spec.target.revision",
    "host": "remove it: the router and the probes reach the engine by the pod's address",
    "port": "remove it: the router and the probes use port 30000",
    "config": "flags in a file cannot be checked: write them in spec.engine.args",
    "help": "remove it: the engine would print its help and end",
    "grpc-mode": "remove it: the router speaks HTTP",
    "grpc-port": "remove it: the router speaks HTTP",
    "api-key": "SGLang takes its key on the command line only, readable by all who may read pods: let a Gateway before "
    "the router ask for it",
    "admin-api-key": "SGLang takes its key on the command line only, readable by all who may read pods: the router "
    "forwards no administrative path anyway",
    "ssl-keyfile": _NO_TLS,
    "ssl-certfile": _NO_TLS,
    "ssl-ca-certs": _NO_TLS,
    "ssl-keyfile-password": _NO_TLS,
    "tensor-parallel-size": "write spec.target.parallelism.tensor",
    "pipeline-parallel-size": "write spec.target.parallelism.pipeline",
    "data-parallel-size": "write spec.target.parallelism.data",
    "nnodes": _ONE_POD,
    "node-rank": _ONE_POD,
    "dist-init-addr": _ONE_POD,
    "disaggregation-mode": "remove it: prefill and decode in pods of their own are not rendered",
    "enable-metrics": "remove it: it is always set, since decisions rest on the engine's counters",
    "tokenizer-metrics-allowed-custom-labels": _LABELS,
    "tokenizer-metrics-custom-labels-header": _LABELS,
}
"""Flags that a user may not set, by any of their spellings, with what to do instead; so are all `speculative-*`."""

OWNED_ENV: Mapping[str, str] = {
    "SGLANG_TIMEOUT_KEEP_ALIVE": "it is 120, longer than the router keeps idle connections; shorter, requests fail",
    "SGLANG_ENABLE_PP_SPEC": "speculation with pipeline parallelism is not offered",
    "SGLANG_SIMULATE_ACC_LEN": "it makes acceptance up, and the policy would decide by it",
    "HF_HOME": "it is set where spec.pools.storage.cache is: remove one of the two",
    "HF_TOKEN": "it is set from spec.target.source.huggingFace.tokenSecretRef: remove one of the two",
}

OWNED_ARGS: Mapping[str, str] = {
    "speculative-algorithm": "write drafts[].mode",
    "speculative-draft-model-path": "write drafts[].model",
    "speculative-draft-model": "write drafts[].model",
    "speculative-draft-model-revision": "write drafts[].revision",
    "speculative-num-steps": "write drafts[].tokens",
    "speculative-dflash-block-size": "write drafts[].tokens, which is the block size less one",
    "speculative-ngram-min-match-window-size": "write drafts[].ngram.minMatch",
    "speculative-ngram-max-match-window-size": "write drafts[].ngram.maxMatch",
}
"""Flags that a user may not set in drafts[].args, with what to do instead."""

WHOLE_NUMBERS = frozenset(
    {
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
        "speculative-draft-window-size",
        "speculative-dflash-draft-window-size",
        "speculative-ngram-min-bfs-breadth",
        "speculative-ngram-max-bfs-breadth",
        "speculative-ngram-capacity",
        "speculative-ngram-branch-length",
        "speculative-ngram-max-trie-depth",
    }
)
SHARES = frozenset({"speculative-accept-threshold-single", "speculative-accept-threshold-acc"})


def owned(spellings: tuple[str, ...]) -> str | None:
    """What to do instead of a flag that specfleet sets; None where a user may."""
    names = [spelling.lstrip("-") for spelling in spellings]
    if any(name.startswith(("speculative-", "decoupled-spec-")) for name in names):
        return _SPECULATION
    return next((OWNED_FLAGS[name] for name in names if name in OWNED_FLAGS), None)


@dataclass(frozen=True)
class Conflict:
    """A flag of `engine.args` that does not go with a mode, and what SGLang does."""

    since: Version
    until: Version | None
    flag: str
    value: str | None
    why: str

    def holds(self, release: Version) -> bool:
        """Whether it does in this release."""
        return self.since <= release and (self.until is None or release <= self.until)


@dataclass(frozen=True)
class SGLangMode:
    """One way to draft.

    Args:
        algorithm: value of `--speculative-algorithm`.
        args: flags, without dashes, that drafts[].args may hold.
    """

    mode: DraftMode
    algorithm: str
    checkpoint: Checkpoint
    args: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    needs: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class SGLangTable:
    """All modes of SGLang, and what they share."""

    modes: tuple[SGLangMode, ...]
    lossy: frozenset[str]
    attribution: str
    metrics: str
    notes: tuple[str, ...]
    sources: tuple[str, ...]
    facts: EngineFactTable

    @cached_property
    def releases(self) -> tuple[Version, ...]:
        """Releases that are rendered, oldest first."""
        return tuple(release for release in self.facts.releases if release >= OLDEST)

    @property
    def newest(self) -> Version:
        """The newest release that was read."""
        return self.facts.releases[-1]

    def of(self, mode: DraftMode) -> SGLangMode | None:
        """The row of a mode; None where SGLang never had it."""
        return next((row for row in self.modes if row.mode is mode), None)

    def nearest(self, release: Version) -> Version:
        """The release that was read whose facts hold: itself, else the newest one before it, at least the oldest."""
        before = [one for one in self.releases if one <= release]
        return before[-1] if before else self.releases[0]

    def having(self, mode: DraftMode) -> tuple[Version, ...]:
        """The releases, of those that were read, that have a mode."""
        row = self.of(mode)
        if row is None:
            return ()
        return tuple(one for one in self.facts.releases if row.algorithm in self.facts.names("methods", one))

    def available(self, release: Version) -> tuple[DraftMode, ...]:
        """The modes of a release that was read."""
        return tuple(row.mode for row in self.modes if row.algorithm in self.facts.names("methods", release))

    def args_of(self, mode: DraftMode, release: Version) -> tuple[str, ...]:
        """What drafts[].args may hold in a release that was read, in the order of the names."""
        row = self.of(mode)
        return () if row is None else tuple(sorted(arg for arg in row.args if self.knows(arg, release)))

    def knows(self, name: str, release: Version) -> bool:
        """Whether a release that was read knows a flag."""
        return f"--{name}" in self.facts.spellings(release)


def _parse(document: Mapping[str, Any], facts: EngineFactTable) -> SGLangTable:
    common = document["common"]
    return SGLangTable(
        modes=tuple(_mode(row) for row in document["modes"]),
        lossy=frozenset(common["lossy"]),
        attribution=common["attribution"],
        metrics=common["metrics"],
        notes=tuple(common["notes"]),
        sources=tuple(common["sources"]),
        facts=facts,
    )


def _mode(row: Mapping[str, Any]) -> SGLangMode:
    return SGLangMode(
        mode=DraftMode(row["mode"]),
        algorithm=row["algorithm"],
        checkpoint=Checkpoint(row["checkpoint"]),
        args=tuple(row["args"]),
        conflicts=tuple(
            Conflict(Version(since), Version(until) if until else None, flag, value, why)
            for since, until, flag, value, why in row["conflicts"]
        ),
        needs=tuple(row["needs"]),
        sources=tuple(row["sources"]),
    )


@lru_cache(maxsize=1)
def table() -> SGLangTable:
    """The table of SGLang."""
    text = files("specfleet.engines").joinpath("sglang_modes.yaml").read_text(encoding="utf-8")
    return _parse(yaml.safe_load(text), engine_facts(EngineType.SGLANG))
