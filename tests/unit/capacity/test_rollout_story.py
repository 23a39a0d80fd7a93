"""Upgrades played through at random: edits at any moment, releases that do not start, an operator that is away."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from specfleet.capacity.rollout import PoolRollout, order

BAD = frozenset({3, 4})
"""Releases whose pods never become ready."""


@dataclass
class Pod:
    release: int
    ready: bool


@dataclass
class Pool:
    """A Deployment with maxSurge 0 and maxUnavailable 1, as Kubernetes rolls it."""

    name: str
    size: int
    template: int = 0
    pods: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods = [Pod(0, ready=True) for _ in range(self.size)]

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.pods)

    def seen(self, wanted: int) -> PoolRollout:
        """What the operator sees of it."""
        carry = all(pod.release == self.template for pod in self.pods)
        return PoolRollout(
            self.name,
            changed=self.template != wanted,
            ready=self.ready,
            serving=self.ready >= max(1, self.size - 1),
            rolled_out=carry and self.ready == self.size,
            underway=not carry,
        )

    def replace_one(self) -> None:
        """One step of the Deployment controller: pods that are not ready first, and one at most away."""
        old = [pod for pod in self.pods if pod.release != self.template]
        if not old:
            return
        victim = min(old, key=lambda pod: pod.ready)
        if not victim.ready or self.ready == self.size:
            self.pods.remove(victim)
            self.pods.append(Pod(self.template, ready=False))

    def start_one(self) -> None:
        """A new pod becomes ready, if it can."""
        for pod in self.pods:
            if not pod.ready and pod.release not in BAD:
                pod.ready = True
                return


STEPS = st.sampled_from(["edit 1", "edit 2", "edit 3", "edit 4", "edit 0", "act", "act", "act", "moving"])
WORK = st.sampled_from(["replace", "start"])
SIZES = st.integers(1, 3)


def act(speculative: Pool, baseline: Pool, wanted: int, *, moving: bool) -> frozenset[str]:
    """One pass of an operator, which knows nothing but what it sees."""
    found = order(speculative.seen(wanted), baseline.seen(wanted), moving=moving)
    for pool in (speculative, baseline):
        if pool.name in found.go:
            pool.template = wanted
    return found.go


@given(SIZES, SIZES, st.lists(st.tuples(STEPS, st.lists(st.tuples(st.booleans(), WORK), max_size=4)), max_size=40))
def test_one_pool_serves_at_every_moment_and_a_good_release_reaches_both(
    first: int, second: int, story: list[tuple[str, list[tuple[bool, str]]]]
) -> None:
    speculative, baseline = Pool("eagle", first), Pool("baseline", second)
    wanted = 0
    for step, works in story:
        if step.startswith("edit"):
            wanted = int(step[-1])
        else:
            act(speculative, baseline, wanted, moving=step == "moving")
        for of_baseline, work in works:
            pool = baseline if of_baseline else speculative
            if work == "replace":
                pool.replace_one()
            else:
                pool.start_one()
            assert speculative.ready + baseline.ready > 0, "no pool serves"
            assert speculative.seen(wanted).serving or baseline.seen(wanted).serving, "no pool carries"

    for wanted in (1, 2):  # whatever has happened, two good releases in a row find their way to all pods
        for _ in range(12 * (first + second)):
            act(speculative, baseline, wanted, moving=False)
            for pool in (speculative, baseline):
                pool.replace_one()
                pool.start_one()
        assert {pod.release for pool in (speculative, baseline) for pod in pool.pods} == {wanted}
        assert speculative.ready == first
        assert baseline.ready == second


@given(SIZES, SIZES, st.sampled_from(sorted(BAD)))
def test_a_release_that_does_not_start_reaches_no_pod_of_the_second_pool(first: int, second: int, bad: int) -> None:
    speculative, baseline = Pool("eagle", first), Pool("baseline", second)
    for _ in range(20):
        act(speculative, baseline, bad, moving=False)
        speculative.replace_one()
        speculative.start_one()
    assert baseline.template == 0
    assert baseline.ready == second
    assert speculative.ready == first - 1
