"""Acceptance over one pod's life, beside that of its siblings: some engines lose it with the hours until a restart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from specfleet.decision.measures import PodSeen

FIRST_SECONDS = 2 * 3600.0
RECENT_SECONDS = 1800.0
LEAST_TRIALS = 1000
OF_OWN = 0.7
OF_SIBLINGS = 0.8


@dataclass(slots=True)
class _Life:
    first_trials: int
    first_accepted: int
    closed: bool = False
    trials: float = 0.0  # fading over RECENT_SECONDS
    accepted: float = 0.0


@dataclass(frozen=True, slots=True)
class Decayed:
    """A pod that accepts less than it did: fractions of trials, of its first hours, lately, and of its siblings."""

    uid: str
    name: str
    first: float
    recent: float
    siblings: float

    def sentence(self) -> str:
        """What to do about it."""
        return (
            f"Pod {self.name} accepts {self.recent:.0%} of its drafts, in its first hours {self.first:.0%}; "
            f"the others accept {self.siblings:.0%}: delete the pod, and a new one begins afresh."
        )


@dataclass(slots=True)
class PodLives:
    """By pod uid. First hours that nobody watched (the operator started later) are the pod's life until then."""

    _lives: dict[str, _Life] = field(default_factory=dict)

    def block(self, pods: Sequence[PodSeen], block_seconds: float) -> tuple[Decayed, ...]:
        """The pods of the speculative pool that have decayed. A pod that is not in `pods` is forgotten."""
        self._lives = {pod.uid: self._lives[pod.uid] for pod in pods if pod.uid in self._lives}
        fade = math.exp(-block_seconds / RECENT_SECONDS)
        for pod in pods:
            self._take(pod, fade)
        return tuple(found for pod in pods if (found := self._decayed(pod)) is not None)

    def _take(self, pod: PodSeen, fade: float) -> None:
        if pod.life_trials is None or pod.life_accepted is None:
            return
        life = self._lives.setdefault(pod.uid, _Life(pod.life_trials, pod.life_accepted))
        if pod.life_trials < life.first_trials:  # the process started again
            life = self._lives[pod.uid] = _Life(pod.life_trials, pod.life_accepted)
        elif not life.closed:
            life.first_trials, life.first_accepted = pod.life_trials, pod.life_accepted
        old = pod.age_seconds is None or pod.age_seconds >= FIRST_SECONDS
        life.closed = life.closed or (old and life.first_trials >= LEAST_TRIALS)
        life.trials = life.trials * fade + (pod.trials or 0)
        life.accepted = life.accepted * fade + (pod.accepted or 0)

    def _decayed(self, pod: PodSeen) -> Decayed | None:
        life = self._lives.get(pod.uid)
        if life is None or not life.closed or life.trials < LEAST_TRIALS:
            return None
        others = [other for uid, other in self._lives.items() if uid != pod.uid]
        trials = sum(other.trials for other in others)
        if trials < LEAST_TRIALS:
            return None
        first, recent = life.first_accepted / life.first_trials, life.accepted / life.trials
        siblings = sum(other.accepted for other in others) / trials
        if recent >= OF_OWN * first or recent >= OF_SIBLINGS * siblings:
            return None
        return Decayed(pod.uid, pod.name, first, recent, siblings)
