"""How the workloads of one SpecDeployment are: ready, rolling, or kept from it by something with a name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from specfleet.api.conditions import Reason
from specfleet.api.names import BASELINE_POOL, pool_object, router_object
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.cluster.kinds import DEPLOYMENT, Kind
from specfleet.handlers.external import Assessment
from specfleet.handlers.observed import OwnedRecord, Workload
from specfleet.handlers.pods import PodRecord, Problem, worst
from specfleet.render.plan import ROUTER_REPLICAS


@dataclass(frozen=True)
class WorkloadHealth:
    """One pool, or the routers.

    Attributes:
        serving: the pods that have to be ready are.
        rolled_out: all pods carry the newest template, and all are ready.
        rolling: some pods carry an older template.
        overdue: the rollout has not moved within its progress deadline.
        absent: the SpecDeployment has no such pool: External pools may have one side only.
        external: somebody else runs the pods; `release` is then their engine's.
    """

    name: str
    desired: int
    ready: int
    serving: bool
    rolled_out: bool
    rolling: bool
    overdue: bool
    problem: Problem | None
    absent: bool = False
    external: bool = False
    release: str | None = None

    @property
    def stuck(self) -> bool:
        """Whether the rollout has stopped before its end."""
        return self.overdue and not (self.serving and self.rolled_out)


@dataclass(frozen=True)
class Fleet:
    """Both pools and the routers; `routers` are the ready router pods, `router_pods` all that are not being deleted.

    `unfit`: why External pools are not one with speculation and one without.
    """

    baseline: WorkloadHealth
    speculative: WorkloadHealth
    router: WorkloadHealth
    routers: tuple[PodRecord, ...]
    router_pods: tuple[PodRecord, ...]
    unfit: Problem | None = None

    @property
    def pools(self) -> tuple[WorkloadHealth, ...]:
        """Baseline and speculative, as far as there are."""
        return tuple(one for one in (self.baseline, self.speculative) if not one.absent)

    @property
    def workloads(self) -> tuple[WorkloadHealth, ...]:
        """The pools and the router."""
        return *self.pools, self.router

    @property
    def rolled_out(self) -> bool:
        """Everything carries the newest template and serves."""
        return all(one.rolled_out and one.serving for one in self.workloads)

    @property
    def overdue(self) -> list[WorkloadHealth]:
        """What has not come up whole and has made no progress within its deadline."""
        return [one for one in self.workloads if one.stuck]

    @property
    def ready(self) -> bool:
        """Both pools and the router serve, and no rollout has stopped before its end."""
        return all(one.serving and not one.stuck for one in self.workloads)


def fleet(
    name: str,
    spec: SpecDeploymentSpec,
    owner_uid: str,
    owned: Mapping[tuple[Kind, str], OwnedRecord],
    pods: Iterable[PodRecord],
    assessment: Assessment | None = None,
    routers: int = ROUTER_REPLICAS,
    held: Problem | None = None,
    one_node_claims: tuple[str, ...] = (),
) -> Fleet:
    """From what was observed of SpecDeployment `name` with this uid; of External pools, from what was seen of them.

    `held`: why the speculative pool is not made, or not changed. `one_node_claims`: claims of the pools' pods that one
    node can have at a time.
    """
    pods = tuple(_apart(tuple(pods), one_node_claims))
    draft = spec.draft.name

    def health(label: str, object_name: str, members: Iterable[PodRecord], desired: int) -> WorkloadHealth:
        record = owned.get((DEPLOYMENT, object_name))
        workload = record.workload if record is not None and record.owner_uid == owner_uid else None
        return _health(label, workload, tuple(members), desired)

    def pool(label: str) -> WorkloadHealth:
        if spec.external is not None:
            return _external(label, assessment or Assessment({}))
        desired = spec.pools.baseline_replicas if label == BASELINE_POOL else spec.pools.speculative_replicas
        return health(label, pool_object(name, label), (pod for pod in pods if pod.pool == label), desired)

    router_pods = tuple(pod for pod in pods if pod.component == "router" and not pod.deleting)
    speculative = pool(draft)
    if held is not None:
        speculative = replace(speculative, problem=held, rolled_out=False)
    return Fleet(
        baseline=pool(BASELINE_POOL),
        speculative=speculative,
        router=health("router", router_object(name), router_pods, routers),
        routers=tuple(sorted((pod for pod in router_pods if pod.ready and pod.ip), key=lambda pod: pod.name)),
        router_pods=router_pods,
        unfit=None if assessment is None else assessment.unfit,
    )


def _apart(pods: tuple[PodRecord, ...], claims: tuple[str, ...]) -> Iterable[PodRecord]:
    """The pods, of which one that waits for a volume that another node has says so: its own status does not."""
    engines = [pod for pod in pods if pod.component == "engine" and pod.node is not None]
    holders = sorted({str(pod.node) for pod in engines if not pod.preparing})
    if not claims or not holders:
        return pods
    what = f"{'claims' if len(claims) > 1 else 'claim'} {', '.join(claims)}"
    problem = Problem(
        Reason.VOLUME_NOT_AVAILABLE,
        f"a pod waits for {what}, which one node can have at a time: {', '.join(holders)} has it. Take a claim with "
        "accessModes [ReadWriteMany], source.image or source.hostPath, or keep all pods on one node with "
        "pools.template.spec.nodeSelector {kubernetes.io/hostname: NODE}",
    )
    return [
        replace(pod, problem=pod.problem or problem)
        if pod in engines and pod.preparing and pod.node not in holders
        else pod
        for pod in pods
    ]


def _external(name: str, assessment: Assessment) -> WorkloadHealth:
    """A pool that is seen by its Service's endpoints alone: how many there should be is its owner's to know."""
    pool = assessment.pools.get(name)
    if pool is None:
        return WorkloadHealth(name, 0, 0, False, True, False, False, None, absent=True, external=True)
    problem = assessment.problems.get(name)
    serving = problem is None and pool.ready > 0
    return WorkloadHealth(
        name=name,
        desired=len(pool.pods),
        ready=pool.ready if serving else 0,
        serving=serving,
        rolled_out=serving,
        rolling=name in assessment.rolling,
        overdue=False,
        problem=problem,
        external=True,
        release=pool.release,
    )


def _health(name: str, workload: Workload | None, pods: tuple[PodRecord, ...], desired: int) -> WorkloadHealth:
    ready = sum(pod.ready for pod in pods)
    problems = [pod.problem for pod in pods]
    if workload is None:
        return WorkloadHealth(name, desired, ready, False, False, False, False, worst(problems))
    serving = workload.available and min(ready, workload.ready) > 0
    rolled_out = workload.settled and workload.desired == desired and workload.ready >= desired
    problem = None if serving and rolled_out else worst([workload.problem, *problems])
    return WorkloadHealth(name, desired, ready, serving, rolled_out, workload.rolling, workload.overdue, problem)


def readiness(state: Fleet) -> tuple[bool, Reason, str]:
    """Status, reason and sentence of condition Ready, as far as the workloads go."""
    if state.ready:
        what = "Both pools" if len(state.pools) == 2 else f"Pool {state.pools[0].name}"
        return True, Reason.AVAILABLE, f"{what} and the router serve."
    failing = [one for one in state.workloads if not one.serving or one.stuck]
    known = [one for one in failing if one.problem is not None]
    first = known[0] if known else failing[0]
    reason = _reason(first, state)
    sentences = [_sentence(one) for one in failing]
    serving = [one.name for one in state.pools if one.serving]
    if len(serving) == 1 and len(state.pools) == 2 and state.router.serving:
        sentences.append(f"Pool {serving[0]} serves all routes.")
    return False, reason, " ".join(sentences)


def _reason(one: WorkloadHealth, state: Fleet) -> Reason:
    if one.problem is not None:
        return one.problem.reason
    if one.overdue:
        return Reason.PROGRESS_DEADLINE_EXCEEDED
    return Reason.ROUTER_NOT_READY if one is state.router else Reason.PODS_NOT_READY


def _sentence(one: WorkloadHealth) -> str:
    what = "The router" if one.name == "router" else f"Pool {one.name}"
    counted = f"{what}: {one.ready} of {one.desired} ready"
    return f"{counted}; {one.problem.message}." if one.problem is not None else f"{counted}."
