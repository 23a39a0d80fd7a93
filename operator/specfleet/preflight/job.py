"""What the preflight Job's container runs: read, judge, and leave the verdict as the termination message.

It imports neither handler nor client library: it has no rights in the cluster, and its memory is small.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from specfleet.preflight.directory import DirectorySource, local_source
from specfleet.preflight.hub import ENDPOINT, HubSource
from specfleet.preflight.reading import InaccessibleError, Source, run_preflight
from specfleet.preflight.request import CACHE_VARIABLE, REQUEST_VARIABLE, ModelRef, decode_request
from specfleet.preflight.verdict import Check, Level, Outcome, PreflightFinding, Verdict

TERMINATION_LOG = Path("/dev/termination-log")


def opener(
    environment: Mapping[str, str], models: Path | None = None, cache: Path | None = None
) -> Callable[[ModelRef, str], Source]:
    """How files are found: absolute paths as they are, others on the Hub, or all of them below `models`.

    CACHE_VARIABLE names a cache of the Hub's own tools, for a Hub that does not answer. Token and endpoint come from
    the environment by the names that those tools use.
    """

    def found(ref: ModelRef, role: str) -> Source:
        if models is not None:
            return _reported(lambda: local_source(models, ref, role))
        if not ref.on_hub:
            return DirectorySource(Path(ref.model), f"the {role} {ref.model}")
        token = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or None
        hub = HubSource(ref, role, token, cache, environment.get("HF_ENDPOINT") or ENDPOINT)
        downloaded = environment.get(CACHE_VARIABLE)
        return _Either(hub, lambda: local_source(Path(downloaded), ref, role)) if downloaded else hub

    return found


class _Absent:
    """Files that are not there: asking for their names says why."""

    commit = None

    def __init__(self, problem: InaccessibleError) -> None:
        self._problem = problem

    def names(self) -> frozenset[str]:
        raise self._problem

    def read(self, name: str, most_bytes: int) -> bytes:
        raise self._problem

    def piece(self, name: str, start: int, length: int) -> bytes:
        raise self._problem


class _Either:
    """The Hub; where it is not to be had, what an engine has downloaded before."""

    def __init__(self, hub: Source, downloaded: Callable[[], Source]) -> None:
        self._chosen, self._downloaded = hub, downloaded

    @property
    def commit(self) -> str | None:
        return self._chosen.commit

    def names(self) -> frozenset[str]:
        try:
            return self._chosen.names()
        except InaccessibleError as problem:
            try:
                local = self._downloaded()
                names = local.names()
            except InaccessibleError:
                raise problem from None
            self._chosen = local
            return names

    def read(self, name: str, most_bytes: int) -> bytes:
        return self._chosen.read(name, most_bytes)

    def piece(self, name: str, start: int, length: int) -> bytes:
        return self._chosen.piece(name, start, length)


def _reported(make: Callable[[], Source]) -> Source:
    try:
        return make()
    except InaccessibleError as problem:
        return _Absent(problem)


def run_job(environment: Mapping[str, str], log: Path = TERMINATION_LOG) -> int:
    """The container's exit status: 0 with a verdict, 1 where something could not be read and is to be tried again."""
    try:
        request = decode_request(environment.get(REQUEST_VARIABLE, ""))
        verdict = run_preflight(request, opener(environment))
    except Exception as problem:  # the boundary: whatever it is, it must not look like a verdict about the draft
        said = f"the preflight ended with {type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        verdict = Verdict((PreflightFinding(Check.FILES, Level.UNKNOWN, said),))
    for finding in verdict.findings:
        print(finding.line(), flush=True)
    print(verdict.outcome, flush=True)
    log.write_text(verdict.encode(), encoding="ascii")
    return 1 if verdict.outcome is Outcome.UNKNOWN else 0


def main() -> int:
    """Entry point."""
    return run_job(os.environ)
