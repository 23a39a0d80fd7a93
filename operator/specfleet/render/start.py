"""How long an engine may take to start, by what it has to load. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from specfleet.engines.protocol import ProbeFact

# A slow object store or a cold shared file system gives a pod this much; a Hub's mirror gives more.
LOADED_MEBIBYTES_PER_SECOND = 100
# The process, compiling and capturing graphs, whatever the size.
BESIDE_LOADING_SECONDS = 600
LONGEST_SECONDS = 4 * 3600
_STEP_SECONDS = 300


@dataclass(frozen=True)
class Start:
    """The time that a pool's pods get to start, in seconds; 0 is the engine's usual one.

    Attributes:
        probe_seconds: by the start-up probe, which stands in the pod template.
        deadline_seconds: by the Deployment's progress deadline, which any moment may change.
    """

    probe_seconds: int = 0
    deadline_seconds: int = 0

    def probe(self, usual: ProbeFact) -> ProbeFact:
        """The start-up probe: the usual one, or one that waits longer."""
        failures = max(usual.failure_threshold, -(-self.probe_seconds // usual.period_seconds))
        return replace(usual, failure_threshold=failures)

    def deadline(self, probe_seconds: int) -> int:
        """The deadline for pods whose probe, as merged with the template, waits so long."""
        return max(probe_seconds, self.deadline_seconds)


USUAL_START = Start()
Starts = Mapping[str, Start]  # by pool


def start_seconds(weight_mebibytes: int | None, usual_seconds: int) -> int:
    """Seconds that loading so much takes at worst, in steps, between the usual time and LONGEST_SECONDS.

    0 where the usual time is enough, or it is not known how much there is to load.
    """
    if weight_mebibytes is None:
        return 0
    needed = BESIDE_LOADING_SECONDS + weight_mebibytes / LOADED_MEBIBYTES_PER_SECOND
    steps = -(-int(needed) // _STEP_SECONDS) * _STEP_SECONDS
    return 0 if steps <= usual_seconds else min(steps, LONGEST_SECONDS)
