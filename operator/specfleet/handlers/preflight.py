"""What the operator makes of a preflight: run it, wait for it, what its verdict costs, and the plan in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from specfleet.api.conditions import Reason
from specfleet.api.models import Preflight
from specfleet.api.names import pool_object, preflight_object
from specfleet.api.status import PlanStatus, PreflightStatus
from specfleet.api.times import epoch, timestamp
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.cluster.kinds import DEPLOYMENT, JOB, Kind
from specfleet.handlers.conditions import Said
from specfleet.handlers.observed import OwnedRecord
from specfleet.handlers.planned import plan_of
from specfleet.handlers.pods import PodRecord, Problem, worst
from specfleet.preflight.request import PreflightRequest
from specfleet.preflight.verdict import Outcome, Verdict, decode
from specfleet.sizing.drafts import WITHOUT_CHECKPOINT
from specfleet.sizing.figures import PlanFigures

_MOST_MESSAGE = 900
_KEPT = "the speculative pool is made all the same"
_ENDED = frozenset({Reason.ENGINE_CRASHES})  # how the container ended says less than what it left


class Found(NamedTuple):
    """What came out of a preflight."""

    outcome: Outcome
    reason: Reason
    message: str
    plan: PlanFigures | None = None
    weight_mebibytes: int | None = None


class Wanted(NamedTuple):
    """A Job that is to run and may never come to be.

    Attributes:
        since: epoch seconds when this process first wanted it.
        refused: why the API server did not take it; None where it did, or was not asked yet.
    """

    since: float
    refused: str | None = None


@dataclass(frozen=True)
class Gate:
    """What follows from a preflight now.

    Attributes:
        said: condition DraftCompatible; None where there is nothing to compare.
        record: the verdict to keep in status.
        run: the Job is wanted.
        held: why the speculative pool must not be made or changed; None where it may.
        next_look: seconds until time alone brings news.
        plan: the KV plan, as far as it is known.
        sequences: that a pod runs at once by the plan, by pool, for the routers' limits; empty where it is not known or
            nobody said how long sequences are.
    """

    said: Said | None = None
    record: PreflightStatus | None = None
    run: bool = False
    held: Problem | None = None
    next_look: float | None = None
    plan: PlanStatus | None = None
    sequences: Mapping[str, int] = field(default_factory=dict)

    @property
    def weight_mebibytes(self) -> int | None:
        """What a pod has to load, as far as it is known."""
        return None if self.record is None else self.record.weight_mebibytes

    @property
    def digest(self) -> list[Any]:
        """What of it rendering depends on."""
        return [self.run, self.held is not None, dict(self.sequences)]

    def kept(self, deployment: str, draft: str) -> frozenset[tuple[Kind, str]]:
        """Objects that are neither made nor changed nor removed."""
        return frozenset({(DEPLOYMENT, pool_object(deployment, draft))}) if self.held is not None else frozenset()


def gate(
    name: str,
    spec: SpecDeploymentSpec,
    request: PreflightRequest | None,
    known: PreflightStatus | None,
    owned: Mapping[tuple[Kind, str], OwnedRecord],
    pods: Iterable[PodRecord],
    now: float,
    limit_seconds: float,
    planned: PlanStatus | None = None,
    wanted: Wanted | None = None,
) -> Gate:
    """From the verdict that status keeps, else from what the Job and its pods say.

    Args:
        name: of the SpecDeployment.
        request: None where there is nothing to compare or it is not wanted.
        limit_seconds: after that long without a verdict there will be none.
        planned: the plan that came with the verdict that status keeps.
        wanted: what is known of the Job apart from `owned`.
    """
    if request is None:
        return Gate()
    record = known if known is not None and known.key == request.key else None
    if record is None:
        members = [pod for pod in pods if pod.preflight == request.key]
        job = owned.get((JOB, preflight_object(name, request.key)))
        began = _began(job, wanted, now)
        trouble = _trouble(members) or (wanted.refused if wanted is not None and job is None else None)
        found = _verdict(members, job, trouble, now - began, limit_seconds)
        if found is None:
            # The last plan stands until there is another, or the routers' limits would go up and down.
            return replace(_waiting(spec, trouble, limit_seconds - (now - began)), plan=planned)
        outcome, reason, message, figures, weight = found
        planned = None if figures is None else plan_of(figures, spec)
        record = PreflightStatus(
            key=request.key,
            outcome=outcome.value,
            reason=reason.value,
            message=message[:_MOST_MESSAGE],
            weight_mebibytes=weight,
            at=timestamp(now),
        )
    status: dict[str, Any] = {Outcome.PASSED: "True", Outcome.FAILED: "False", Outcome.UNKNOWN: "Unknown"}
    held = None
    if record.outcome == "Failed" and _holds(spec):
        held = Problem(Reason.DRAFT_INCOMPATIBLE, record.message)
    said = Said(status[record.outcome], record.reason, _sentence(record.message))
    return Gate(said, record, held=held, plan=planned)


def _waiting(spec: SpecDeploymentSpec, trouble: str | None, left: float) -> Gate:
    said = "target and draft are being compared" + (f"; {trouble}" if trouble else "")
    held = Problem(Reason.PREFLIGHT_RUNNING, said) if _holds(spec) else None
    return Gate(
        Said("Unknown", Reason.PREFLIGHT_RUNNING, _sentence(said)), run=True, held=held, next_look=max(0.05, left)
    )


def _holds(spec: SpecDeploymentSpec) -> bool:
    """Whether the pool waits: what drafts from the text alone fits whatever the target is."""
    return spec.draft.preflight is Preflight.REQUIRE and spec.draft.mode not in WITHOUT_CHECKPOINT


def _verdict(
    pods: list[PodRecord], job: OwnedRecord | None, trouble: str | None, waited: float, limit_seconds: float
) -> Found | None:
    """What came out; None while there may still be something."""
    verdicts = [one for one in (decode(pod.left) for pod in pods) if one is not None]
    final = next((one for one in verdicts if one.outcome is not Outcome.UNKNOWN), None)
    if final is not None:
        reason = Reason.DRAFT_FITS if final.outcome is Outcome.PASSED else Reason.DRAFT_INCOMPATIBLE
        return Found(final.outcome, reason, final.message, final.plan, final.weight_mebibytes)
    ended = job.ended if job is not None else None
    garbled = any(pod.left is not None and decode(pod.left) is None for pod in pods)
    if ended == "Complete" and garbled:
        return _inconclusive("the preflight left a message that is no verdict")
    if ended is not None and ended not in ("Complete", "DeadlineExceeded"):
        return _inconclusive(_unread(verdicts) or trouble or f"the preflight Job failed ({ended})")
    if ended == "DeadlineExceeded" or waited >= limit_seconds:
        idle = "its pod has not ended" if pods else "its Job got no pod, which kubectl get events explains"
        why = _unread(verdicts) or trouble or idle
        return Found(
            Outcome.UNKNOWN,
            Reason.PREFLIGHT_TIMED_OUT,
            f"there was no verdict within {limit_seconds:.0f} s: {why}; {_KEPT}",
        )
    return None


def _inconclusive(why: str) -> Found:
    return Found(Outcome.UNKNOWN, Reason.PREFLIGHT_INCONCLUSIVE, f"{why}; {_KEPT}")


def _unread(verdicts: list[Verdict]) -> str | None:
    return verdicts[-1].message if verdicts else None


def _trouble(pods: list[PodRecord]) -> str | None:
    problem = worst(pod.problem for pod in pods if pod.problem is not None and pod.problem.reason not in _ENDED)
    if problem is not None and problem.reason is Reason.OUT_OF_MEMORY:
        return "its container was killed for want of memory"
    return problem.message if problem is not None else None


def _began(job: OwnedRecord | None, wanted: Wanted | None, now: float) -> float:
    """When the Job was made, which outlives this process, or was first wanted."""
    if job is None or job.created is None:
        return now if wanted is None else wanted.since
    try:
        return epoch(job.created)
    except ValueError:
        return now


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:].rstrip('.')}."
