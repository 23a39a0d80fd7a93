"""TensorRT-LLM by release: its draft modes, and what specfleet owns of its flags, file and variables.

No package index has its wheels, so keys and flags come from what the documentation of releases was generated from, of
some releases only: docs/contributing/api-and-engines.md. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import yaml
from packaging.version import Version

from specfleet.api.v1alpha1 import DraftMode
from specfleet.engines.capabilities import Checkpoint
from specfleet.engines.facts import Fact

OLDEST = Version("1.0.0")
"""The first release that is rendered: the first with a stable API of its PyTorch backend."""
COUNTING_SINCE = Version("1.3.0rc13")
"""The first release that is taken to count drafts on its Prometheus page."""
HUB_DRAFTS_SINCE = Version("1.2.0")
"""The first release that downloads a draft."""
PENALTIES_REFUSED_SINCE = Version("1.3.0rc0")
SAMPLING_KEY_UNTIL = Version("1.3.0rc26")
"""The last release in which `allow_advanced_sampling` does something."""

_SPECULATION = "speculation is described by spec.drafts, and only the speculative pool gets it"
_ONE_POD = "one engine pod is one replica: write spec.target.parallelism"
_PORT = "remove it: the router and the probes use port 8000 of the pod's address"
_REVISION = "write spec.target.revision"
_CAPACITY = "write spec.engine.args.max_batch_size, which also sizes the router's limits"
_METRICS = "remove it: it is set where the release counts by it, alike in both pools"

OWNED_FLAGS: Mapping[str, str] = {
    "host": _PORT,
    "port": _PORT,
    "backend": "remove it: draft modes are those of the PyTorch backend, which is set",
    "tp_size": "write spec.target.parallelism.tensor",
    "tensor_parallel_size": "write spec.target.parallelism.tensor",
    "pp_size": "write spec.target.parallelism.pipeline",
    "pipeline_parallel_size": "write spec.target.parallelism.pipeline",
    "cp_size": _ONE_POD,
    "context_parallel_size": _ONE_POD,
    "gpus_per_node": _ONE_POD,
    "config": "write spec.engine.config",
    "extra_llm_api_options": "write spec.engine.config",
    "set": "write spec.engine.config",
    "revision": _REVISION,
    "hf_revision": _REVISION,
    "served_model_name": "write spec.target.servedName; further aliases are routes with match.model",
    "grpc": "remove it: the router speaks HTTP",
    "num_serve_frontends": "remove it: each process would have counters of its own behind one port",
    "server_role": "remove it: prefill and decode in pods of their own are not rendered",
    "disagg_cluster_uri": "remove it: prefill and decode in pods of their own are not rendered",
    "metadata_server_config_file": "remove it: the router finds the pods by their Service",
    "enable_visual_gen": "remove it: the router forwards chat and completions only",
    "visual_gen_args": "remove it: the router forwards chat and completions only",
    "help": "remove it: the engine would print its help and end",
}
"""Flags of `trtllm-serve`, without dashes, that a user may not set, with what to do instead."""

OWNED_CONFIG: Mapping[str, str] = {
    "speculative_config": _SPECULATION,
    "decoding_type": _SPECULATION,
    "speculative_model": _SPECULATION,
    "speculative_model_dir": _SPECULATION,
    "decoding_config": _SPECULATION,
    "model": "write spec.target.model",
    "revision": _REVISION,
    "backend": OWNED_FLAGS["backend"],
    "tensor_parallel_size": OWNED_FLAGS["tp_size"],
    "pipeline_parallel_size": OWNED_FLAGS["pp_size"],
    "context_parallel_size": _ONE_POD,
    "gpus_per_node": _ONE_POD,
    "tp_size": OWNED_FLAGS["tp_size"],
    "pp_size": OWNED_FLAGS["pp_size"],
    "cp_size": _ONE_POD,
    "max_batch_size": _CAPACITY,
    "max_seq_len": "write spec.engine.args.max_seq_len, by which the draft is compared with what is served",
    "return_perf_metrics": _METRICS,
    "enable_iter_perf_stats": _METRICS,
    "served_model_name": OWNED_FLAGS["served_model_name"],
    "hostname": _PORT,
    "host": _PORT,
    "port": _PORT,
}
"""Keys of the engine's file that a user may not set at its top level, with what to do instead."""

OWNED_ANYWHERE = frozenset(
    {"speculative_config", "decoding_config", "decoding_type", "speculative_model", "speculative_model_dir"}
)
"""Keys that a user may not set at any depth: each begins a speculative config wherever one is read."""

OWNED_ARGS: Mapping[str, str] = {
    "decoding_type": "write drafts[].mode",
    "speculative_model": "write drafts[].model",
    "speculative_model_dir": "write drafts[].model",
    "max_draft_len": "write drafts[].tokens",
    "max_total_draft_tokens": "write drafts[].tokens; only chains are drafted",
    "num_nextn_predict_layers": "write drafts[].tokens",
    "max_matching_ngram_size": "write drafts[].ngram.maxMatch",
    "allow_advanced_sampling": "remove it: it is set where it keeps requests' sampling parameters in force",
}
"""Keys of `speculative_config` that a user may not set in drafts[].args, with what to do instead."""

OWNED_ENV: Mapping[str, str] = {
    "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "it makes acceptance up, and the policy would decide by it",
    "HF_HOME": "it is set where spec.pools.storage.cache is: remove one of the two",
    "HF_TOKEN": "it is set from spec.target.source.huggingFace.tokenSecretRef: remove one of the two",
}


@dataclass(frozen=True)
class DocumentedRelease:
    """Where the facts of one release were read.

    Args:
        commit: of the engine's repository, where its pages say which they were generated from.
    """

    commit: str
    pages: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """Facts of one kind, and the releases in which they were read, oldest first."""

    read: tuple[Version, ...]
    facts: tuple[Fact, ...]

    def detail(self, name: str, release: Version) -> str | None:
        """What is said of a name in a release; None where it has none.

        A release that was not read has what the one before and the one after it have alike, a later patch of a final
        release what that has, and one after all that were read what the last has.
        """
        exact = self._standing_for(release)
        if exact is not None:
            return self._of(name, exact)
        before = [one for one in self.read if one < release]
        after = [one for one in self.read if one > release]
        found = self._of(name, before[-1]) if before else None
        return found if not after or self._of(name, after[0]) == found else None

    def names(self, release: Version) -> tuple[str, ...]:
        """All names of a release, in their order."""
        return tuple(
            sorted(name for name in {fact.name for fact in self.facts} if self.detail(name, release) is not None)
        )

    def spans(self, name: str) -> str:
        """The releases that were read and have a name, in words."""
        rows = [fact for fact in self.facts if fact.name == name]
        return " and ".join(str(row.since) if row.since == row.until else f"{row.since} to {row.until}" for row in rows)

    def _standing_for(self, release: Version) -> Version | None:
        if release in self.read:
            return release
        patches = [
            one
            for one in self.read
            if not one.is_prerelease
            and not release.is_prerelease
            and one.release[:2] == release.release[:2]
            and one < release
        ]
        return patches[-1] if patches else None

    def _of(self, name: str, read: Version) -> str | None:
        return next(
            (fact.detail for fact in self.facts if fact.name == name and fact.since <= read <= fact.until), None
        )


@dataclass(frozen=True)
class TrtllmMode:
    """One way to draft.

    Args:
        types: values of `decoding_type`, the preferred first.
        tokens_keys: the key of k, by the last release that has it; None for the newest.
        args: keys of the speculative config that drafts[].args may hold beside the common ones.
        one_model: the release from which drafts are made in the target's own forward pass; None for never.
        weak: what rests on less than a released text.
    """

    mode: DraftMode
    types: tuple[str, ...]
    tokens_keys: tuple[tuple[Version | None, str], ...]
    checkpoint: Checkpoint
    args: tuple[str, ...]
    one_model: Version | None
    needs: tuple[str, ...]
    sources: tuple[str, ...]
    weak: tuple[str, ...]

    def tokens_key(self, release: Version) -> str:
        """The key that holds k in a release."""
        return next(key for until, key in self.tokens_keys if until is None or release <= until)


@dataclass(frozen=True)
class TrtllmTable:
    """All modes of TensorRT-LLM, and what they share.

    Args:
        gate: keys of the engine's own permanent gate.
        scheduling: keys by which the engine drafts less, or nothing, at larger batches.
    """

    modes: tuple[TrtllmMode, ...]
    common_args: tuple[str, ...]
    gate: frozenset[str]
    scheduling: frozenset[str]
    lossy: frozenset[str]
    choices: Mapping[str, tuple[str, ...]]
    not_offered: Mapping[str, str]
    attribution: str
    metrics: str
    notes: tuple[str, ...]
    weak: tuple[str, ...]
    sources: tuple[str, ...]
    documented: Mapping[Version, DocumentedRelease]
    sections: Mapping[str, Section]

    @cached_property
    def releases(self) -> tuple[Version, ...]:
        """Releases of which something was read, oldest first."""
        return tuple(sorted(self.documented))

    @property
    def newest(self) -> Version:
        """The newest of them."""
        return self.releases[-1]

    def of(self, mode: DraftMode) -> TrtllmMode | None:
        """The row of a mode; None where TensorRT-LLM's PyTorch backend never had it."""
        return next((row for row in self.modes if row.mode is mode), None)

    def type_of(self, mode: DraftMode, release: Version) -> str | None:
        """The name of a mode in a release; None where it has none that is known."""
        row, section = self.of(mode), self.sections["types"]
        names = () if row is None else row.types
        return next((name for name in names if section.detail(name, release) is not None), None)

    def having(self, mode: DraftMode) -> tuple[Version, ...]:
        """The releases, of those whose types were read, that have a mode."""
        return tuple(one for one in self.sections["types"].read if self.type_of(mode, one) is not None)

    def available(self, release: Version) -> tuple[DraftMode, ...]:
        """The modes of a release."""
        return tuple(row.mode for row in self.modes if self.type_of(row.mode, release) is not None)

    def key_detail(self, name: str, mode: DraftMode, release: Version) -> str | None:
        """The type of a key of the speculative config; None where the release has none of this name for the mode."""
        own = self.sections.get(f"keys.{mode}")
        found = own.detail(name, release) if own is not None else None
        return found or self.sections["keys"].detail(name, release)

    def key_spans(self, name: str, mode: DraftMode) -> str:
        """The releases that were read and have a key, in words; "" for none."""
        own = self.sections.get(f"keys.{mode}")
        return (own.spans(name) if own is not None else "") or self.sections["keys"].spans(name)

    def args_of(self, mode: DraftMode, release: Version) -> tuple[str, ...]:
        """What drafts[].args may hold in a release, in the order of the names."""
        row = self.of(mode)
        offered = () if row is None else (*row.args, *self.common_args)
        return tuple(sorted(name for name in offered if self.key_detail(name, mode, release) is not None))

    def flag(self, spelling: str, release: Version) -> str | None:
        """Whether a flag, with its dashes, takes a value in a release; None where the release does not know it."""
        return self.sections["flags"].detail(spelling, release)


def _parse(document: Mapping[str, Any], facts: Mapping[str, Any]) -> TrtllmTable:
    common = document["common"]
    return TrtllmTable(
        modes=tuple(_mode(row) for row in document["modes"]),
        common_args=tuple(common["args"]),
        gate=frozenset(common["gate"]),
        scheduling=frozenset(common["scheduling"]),
        lossy=frozenset(common["lossy"]),
        choices={name: tuple(values) for name, values in common["choices"].items()},
        not_offered=dict(common["notOffered"]),
        attribution=common["attribution"],
        metrics=common["metrics"],
        notes=tuple(common["notes"]),
        weak=tuple(common["weak"]),
        sources=tuple(common["sources"]),
        documented={
            Version(release): DocumentedRelease(one["commit"], tuple(one["pages"]))
            for release, one in facts["releases"].items()
        },
        sections={name: _section(one) for name, one in facts["sections"].items()},
    )


def _section(one: Mapping[str, Any]) -> Section:
    return Section(
        tuple(Version(release) for release in one["read"]),
        tuple(Fact(name, detail, Version(since), Version(until)) for name, detail, since, until in one["facts"]),
    )


def _mode(row: Mapping[str, Any]) -> TrtllmMode:
    return TrtllmMode(
        mode=DraftMode(row["mode"]),
        types=tuple(row["types"]),
        tokens_keys=tuple((Version(until) if until else None, key) for until, key in row["tokensKey"]),
        checkpoint=Checkpoint(row["checkpoint"]),
        args=tuple(row["args"]),
        one_model=Version(row["oneModel"]) if row["oneModel"] else None,
        needs=tuple(row["needs"]),
        sources=tuple(row["sources"]),
        weak=tuple(row["weak"]),
    )


@lru_cache(maxsize=1)
def table() -> TrtllmTable:
    """The table of TensorRT-LLM."""
    folder = files("specfleet.engines")
    modes = yaml.safe_load(folder.joinpath("trtllm_modes.yaml").read_text(encoding="utf-8"))
    return _parse(modes, json.loads(folder.joinpath("facts_trtllm.json").read_text(encoding="utf-8")))
