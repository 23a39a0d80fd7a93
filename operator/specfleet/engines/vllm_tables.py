"""vLLM by release: its flags, and what specfleet owns of them. Read in the released sources."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.capabilities import Span, capabilities
from specfleet.engines.facts import Fact, engine_facts
from specfleet.engines.flags import Arity, Flag, FlagTable, of_release, parse_table
from specfleet.engines.release import Minor

OLDEST = Version("0.8.5")
"""The first release that is rendered, and the oldest whose sources were read."""
FIGURES_SINCE = Version("0.29.0")
"""The first release that puts acceptance figures into answers; in older ones the engine's own counters are read."""
GENERATIONS_UNTIL = Version("0.11.0")
"""The last release that takes VLLM_USE_V1; left alone, older ones fall back to the V0 engine for what V1 cannot do."""
KEEP_ALIVE_SINCE = Version("0.9.1")
"""The first release whose keep-alive can be set; before it unused connections are closed after 5 s."""
DRAINS_SINCE = Version("0.18.0")
"""The first release with --shutdown-timeout; before it the end of a process ends its requests."""
PIPELINES_SINCE = Version("0.16.0")
"""The first release whose manual does not call speculation incompatible with pipeline parallelism."""
LORA_RULE_SINCE = Version("0.11.1")
"""The first release that asks for batch tokens for all drafted tokens where LoRA is on."""
NEWEST = Minor(0, 33)
"""The newest release whose flags and keys are in the tables."""
PARSERS_SINCE = Minor(0, 29)
"""From this release on the table of flags is that of vLLM's own parser; of older ones the sources were read."""

_SPECULATION = "speculation is described by spec.drafts, and only the speculative pool gets it"
_ONE_POD = "one engine pod is one replica: write spec.target.parallelism"
_NO_TLS = "the router speaks plain HTTP to the engines; TLS for clients is the work of a Gateway before the router"

OWNED_FLAGS: dict[str, str] = {
    "model": "write spec.target.model",
    "served-model-name": "write spec.target.servedName; further aliases are routes with match.model",
    "revision": "write spec.target.revision",
    "hf-token": "write spec.target.source.huggingFace.tokenSecretRef, so that the token stays in a Secret",
    "host": "remove it: the router and the probes reach the engine by the pod's address",
    "port": "remove it: the router and the probes use port 8000",
    "uds": "remove it: the router reaches the engine by TCP on port 8000",
    "grpc": "remove it: the router speaks HTTP",
    "grpc-port": "remove it: the router speaks HTTP",
    "headless": "remove it: the router needs the engine's API server",
    "config": "flags in a file cannot be checked: write them in spec.engine.args",
    "help": "remove it: the engine would print its help and end",
    "api-key": "a key on the command line is readable by all who may read pods: write the variable VLLM_API_KEY in "
    "spec.engine.env with valueFrom.secretKeyRef",
    "ssl-keyfile": _NO_TLS,
    "ssl-certfile": _NO_TLS,
    "ssl-ca-certs": _NO_TLS,
    "ssl-cert-reqs": _NO_TLS,
    "tensor-parallel-size": "write spec.target.parallelism.tensor",
    "pipeline-parallel-size": "write spec.target.parallelism.pipeline",
    "data-parallel-size": "write spec.target.parallelism.data",
    "data-parallel-size-local": _ONE_POD,
    "data-parallel-rank": _ONE_POD,
    "data-parallel-start-rank": _ONE_POD,
    "data-parallel-address": _ONE_POD,
    "data-parallel-hybrid-lb": _ONE_POD,
    "data-parallel-external-lb": _ONE_POD,
    "data-parallel-multi-port-external-lb": _ONE_POD,
    "nnodes": _ONE_POD,
    "node-rank": _ONE_POD,
    "master-addr": _ONE_POD,
    "master-port": _ONE_POD,
    "speculative-config": _SPECULATION,
    "spec-method": _SPECULATION,
    "spec-model": _SPECULATION,
    "spec-tokens": _SPECULATION,
    "per-request-spec-decode-metrics": "remove it: the speculative pool gets it, and without speculation vLLM refuses "
    "to start with it",
    "enable-force-include-usage": "remove it: the router asks for usage where the client did not and hides the event "
    "that this brings; with the flag, clients would get usage on every chunk",
    "shutdown-timeout": "remove it: it is set to fit the pod's termination grace period",
}
"""Flags that a user may not set, by main name, with what to do instead."""

OWNED_ENV: dict[str, str] = {
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "it is 120, longer than the router keeps idle connections; shorter, requests fail",
    "VLLM_USE_V1": "both pools have to run the same engine of vLLM: it is set by what the drafts need",
    "VLLM_PORT": "it moves internal ports that the pod relies on",
    "HF_HOME": "it is set where spec.pools.storage.cache is: remove one of the two",
    "VLLM_CACHE_ROOT": "it is set where spec.pools.storage.cache is: remove one of the two",
    "HF_TOKEN": "it is set from spec.target.source.huggingFace.tokenSecretRef: remove one of the two",
}

OWNED_KEYS: dict[str, str] = {
    "method": "write drafts[].mode",
    "model": "write drafts[].model",
    "revision": "write drafts[].revision",
    "num_speculative_tokens": "write drafts[].tokens",
    "prompt_lookup_min": "write drafts[].ngram.minMatch",
    "prompt_lookup_max": "write drafts[].ngram.maxMatch",
}
"""Keys of the speculative config that a user may not set in drafts[].args, with what to do instead."""


def has_figures(release: Version) -> bool:
    """Whether answers of a release, or of its candidates, can carry acceptance figures."""
    return Minor.of(release) >= Minor.of(FIGURES_SINCE)


def refused_fields(release: Version | None) -> tuple[str, ...]:
    """Body members that a release answers with 400 under speculation; of the newest where it is not known."""
    rows = capabilities(EngineType.VLLM).refused_fields
    release = release or Version(str(NEWEST))
    return tuple(words.split()[0] for row in rows if release in row.releases for words in row.fields)


def knows_generations(release: Version) -> bool:
    """Whether a release has two engines, V0 and V1, and takes `VLLM_USE_V1`."""
    return release in Span(None, GENERATIONS_UNTIL)


@lru_cache(maxsize=1)
def all_flags() -> tuple[Flag, ...]:
    """Flags of all known releases."""
    return parse_table(files("specfleet.engines").joinpath("vllm_flags.tsv").read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def flags_of(release: Version) -> FlagTable:
    """Flags of one release; of a release newer than the table, those of the newest known."""
    minor = Minor.of(release)
    if minor >= PARSERS_SINCE:
        return of_release(all_flags(), min(minor, NEWEST), {"-O": "--optimization-level"})
    facts = engine_facts(EngineType.VLLM)
    flags = [fact_flag(fact) for fact in facts.of("flags", facts.nearest(release))]
    spellings = {spelling for flag in flags for spelling in flag.spellings}
    attached = {"-O": "--compilation-config"} if {"-O", "--compilation-config"} <= spellings else {}
    return FlagTable(flags, attached)


def fact_flag(fact: Fact) -> Flag:
    """A flag as it was read in the sources, which do not tell one value from several: the parsers' table does."""
    spellings = tuple(fact.name.split())
    arity = {"switch": Arity.NONE, "optional": Arity.OPTIONAL}.get(fact.detail)
    arity = arity or _arities().get(spellings[0], Arity.ONE)
    return Flag(spellings, arity, Minor.of(fact.since), Minor.of(fact.until))


@lru_cache(maxsize=1)
def _arities() -> dict[str, Arity]:
    return {flag.spellings[0]: flag.arity for flag in all_flags()}
