"""What adopting with --split has to know of an engine's own words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import sglang_arguments, sglang_tables, vllm_retired, vllm_tables
from specfleet.engines.flags import Flag, FlagTable, Unresolved
from specfleet.engines.known_flags import KnownFlags


@dataclass(frozen=True)
class Dialect:
    """One engine.

    Args:
        oldest: the first release that is rendered; `example` is one to name.
        table: flags of a release.
        parallelism: fields of `target.parallelism` by flag.
        alike: flags that specfleet sets itself, to the same end.
        read: flags that are read into other fields, beside those of speculation.
        owned: what to do instead of a flag that a user may not set, by its spellings; None where he may.
        program: what specfleet starts.
    """

    engine: EngineType
    oldest: Version
    example: str
    table: Callable[[Version], FlagTable]
    parallelism: Mapping[str, str]
    alike: frozenset[str]
    read: frozenset[str]
    owned: Callable[[Flag], str | None]
    speculates: Callable[[str], bool]
    program: str

    def current(self, flag: Flag, release: Version) -> tuple[Flag, str] | None:
        """The flag as a release knows it, and its spelling there; None where it does not."""
        table = self.table(release)
        for spelling in flag.spellings:
            known, found = table.resolve(spelling)
            if isinstance(known, Unresolved) or found != (spelling,):
                continue
            if isinstance(table, KnownFlags) and not table.is_current(table.given(spelling, "args")):
                continue
            return known, spelling
        return None


def _names(flag: Flag) -> list[str]:
    return [spelling.lstrip("-") for spelling in flag.spellings]


VLLM = Dialect(
    engine=EngineType.VLLM,
    oldest=vllm_tables.OLDEST,
    example=f"{vllm_tables.NEWEST}.0",
    table=vllm_tables.flags_of,
    parallelism={
        "tensor-parallel-size": "tensor",
        "pipeline-parallel-size": "pipeline",
        "data-parallel-size": "data",
    },
    alike=frozenset({"host", "port", "shutdown-timeout", "per-request-spec-decode-metrics", "headless"}),
    read=frozenset({"model", "served-model-name", "revision", "speculative-config"}),
    owned=lambda flag: next(
        (vllm_tables.OWNED_FLAGS[one] for one in _names(flag) if one in vllm_tables.OWNED_FLAGS), None
    ),
    speculates=lambda name: name in vllm_retired.SPECULATIVE_KEYS or name in vllm_retired.SPECULATIVE_SWITCHES,
    program="vllm serve",
)
SGLANG = Dialect(
    engine=EngineType.SGLANG,
    oldest=sglang_tables.OLDEST,
    example=str(sglang_tables.table().newest),
    table=sglang_arguments.flags_of,
    parallelism={
        name: field
        for short, long, field in (
            ("tp-size", "tensor-parallel-size", "tensor"),
            ("pp-size", "pipeline-parallel-size", "pipeline"),
            ("dp-size", "data-parallel-size", "data"),
        )
        for name in (short, long)
    },
    alike=frozenset({"host", "port", "enable-metrics"}),
    read=frozenset({"model-path", "served-model-name", "revision"}),
    owned=lambda flag: sglang_tables.owned(flag.spellings),
    speculates=lambda name: name.startswith("speculative-"),
    program="python3 -m sglang.launch_server",
)
DIALECTS: Mapping[EngineType, Dialect] = {one.engine: one for one in (VLLM, SGLANG)}
