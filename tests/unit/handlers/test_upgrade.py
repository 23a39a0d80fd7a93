"""What an upgrade says of itself, what it holds back, and what is still carried out meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.status import SpecDeploymentStatus, UpgradeStatus
from specfleet.cluster.kinds import CONFIG_MAP, DEPLOYMENT
from specfleet.decision.reasons import Hold
from specfleet.handlers.conditions import Said, Troubles, assess
from specfleet.handlers.decide import hold_for
from specfleet.handlers.fleet import fleet
from specfleet.handlers.observed import Observed
from specfleet.handlers.plan import owned_manifest, plan
from specfleet.handlers.pods import Problem
from specfleet.handlers.rendered import SpecRenderer
from specfleet.handlers.upgrade import Upgrade, upgrade
from specfleet.render.start import Start
from specfleet.settings import OperatorSettings
from tests.unit.handlers.samples import UID, Body, live, owner, pod, spec_of

KEY = ("serving", "assistant")
POOLS = ("ngram", "baseline")
RENDERER = SpecRenderer(OperatorSettings())
READ = Said("True", Reason.ROUTERS_READ, "The routers' counters are read.")
UNFIT = Problem(Reason.DRAFT_INCOMPATIBLE, "the tokenizers differ")


class Cluster:
    """The Deployments of a fleet, each as of a SpecDeployment of its own, and their pods."""

    def __init__(self, **of: Body) -> None:
        self.store = Observed()
        for name in POOLS:
            if name in of:
                self.deployment(name, of[name])

    def deployment(
        self, pool: str, body: Body, *, ready: bool = True, overdue: bool = False, noted: bool = True, **status: Any
    ) -> None:
        """The Deployment of `pool` as rendered for `body`; `noted` False: by a release that wrote no annotations."""
        spec = spec_of(body)
        manifest = next(
            one
            for one in RENDERER.render(body, spec, {}).objects
            if (one["kind"], one["metadata"]["name"]) == ("Deployment", f"assistant-{pool}")
        )
        if not noted:
            manifest = {**manifest, "metadata": {k: v for k, v in manifest["metadata"].items() if k != "annotations"}}
        count = manifest["spec"]["replicas"]
        progress = {"type": "Progressing", "status": "False" if overdue else "True"}
        progress["reason"] = "ProgressDeadlineExceeded" if overdue else "NewReplicaSetAvailable"
        found = {
            "observedGeneration": 1,
            "replicas": count,
            "updatedReplicas": count,
            "readyReplicas": count if ready else 0,
            "conditions": [{"type": "Available", "status": "True"}, progress],
            **status,
        }
        self.store.put_owned(DEPLOYMENT, live(owned_manifest(manifest, body), status=found))
        for index in range(count):
            self.store.put_pod(pod(f"{pool}-{index}", "engine", pool, ready=ready))

    def upgrade(self, body: Body, before: UpgradeStatus | None = None, **more: Any) -> Upgrade:
        """Towards the SpecDeployment `body`."""
        spec = spec_of(body)
        state = fleet("assistant", spec, UID, self.store.owned(KEY), self.store.pods(KEY), held=more.get("held"))

        def template(pool: str) -> Any:
            return RENDERER.template(body, spec, pool)

        wanted = RENDERER.check(body).pools
        return upgrade("assistant", spec, UID, wanted, self.store.owned(KEY), state, before, template, **more)


def spec(version: str = "0.32.0", *, replicas: int = 2, **draft: Any) -> Body:
    return owner(
        engine={"type": "vLLM", "version": version},
        drafts=[{"name": "ngram", "mode": "NGram", **draft}],
        pools={"replicas": replicas},
    )


def both(body: Body) -> Cluster:
    return Cluster(ngram=body, baseline=body)


def test_what_is_as_wanted_is_no_upgrade() -> None:
    assert both(spec()).upgrade(spec()) == Upgrade()
    scaled = both(spec()).upgrade(spec(replicas=5))
    assert (scaled.changed, scaled.status) == (frozenset(), None)


def test_another_release_is_told_and_one_pool_waits() -> None:
    found = both(spec()).upgrade(spec("0.33.0", tokens=5))
    assert found.changed == {"ngram", "baseline"}
    assert set(found.waits) == {"baseline"}
    assert found.frozen
    assert found.redrafted
    assert found.status == UpgradeStatus(
        state="Rolling",
        pool="ngram",
        next="baseline",
        changes="release 0.32.0 -> 0.33.0, tokens 4 -> 5",
        from_release="0.32.0",
        message="Pool ngram takes the new template. Pool baseline carries on its old template and is next.",
    )


def test_the_next_operator_goes_on_where_the_last_one_was_killed() -> None:
    old, new = spec(), spec("0.33.0", tokens=5)
    begun = both(old).upgrade(new).status
    half = Cluster(baseline=old)
    half.deployment("ngram", new, ready=False)
    rolling = half.upgrade(new, begun)
    assert rolling.status == begun
    assert rolling.waits == {"baseline": "ngram does not serve"}
    done = Cluster(ngram=new, baseline=old).upgrade(new, begun)
    assert done.waits == {}
    assert done.status is not None
    assert (done.status.state, done.status.pool, done.status.next) == ("Rolling", "baseline", None)
    assert done.status.changes == "release 0.32.0 -> 0.33.0, tokens 4 -> 5"
    assert done.status.message == (
        "Pool baseline takes the new template. Until its only pod is ready, requests that only baseline may serve are "
        "answered 503."
    )
    last = Cluster(ngram=new)
    last.deployment("baseline", new, ready=False)
    assert (last.upgrade(new, done.status).status or begun) == done.status
    assert both(new).upgrade(new, done.status) == Upgrade()


def test_an_upgrade_that_hangs_is_told_in_ready_and_stalled_and_the_other_pool_is_said_to_stay() -> None:
    old, new = spec(), spec("0.33.0")
    begun = both(old).upgrade(new).status
    hung = Cluster(baseline=old)
    hung.deployment("ngram", new, ready=False, overdue=True)
    found = hung.upgrade(new, begun)
    assert found.status is not None
    assert (found.status.state, found.status.pool, found.status.next) == ("Stuck", "ngram", "baseline")
    assert found.waits == {"baseline": "ngram does not serve"}
    state = found.marked(fleet("assistant", spec_of(new), UID, hung.store.owned(KEY), hung.store.pods(KEY), routers=0))
    said = assess(
        state, [], READ, Troubles(), [], SpecDeploymentStatus(), 2,
        pending=False, rejected=False, no_room=[], upgrade=found.status,
    )  # fmt: skip
    for kind, status in ((ConditionType.READY, "False"), (ConditionType.STALLED, "True")):
        assert said[kind].status == status
        assert said[kind].reason == Reason.PROGRESS_DEADLINE_EXCEEDED
        assert "Pool ngram: 0 of 1 ready" in said[kind].message
        assert said[kind].message.endswith("Pool baseline stays on its old template.")
    assert said[ConditionType.RECONCILING].status == "False"


def test_one_pod_of_three_that_does_not_come_up_is_for_a_person_though_the_pool_serves() -> None:
    old, new = spec(replicas=4), spec("0.33.0", replicas=4)
    begun = both(old).upgrade(new).status
    hung = Cluster(baseline=old)
    hung.deployment("ngram", new, overdue=True, updatedReplicas=1, readyReplicas=1)
    found = hung.upgrade(new, begun)
    assert found.status is not None
    assert found.status.state == "Stuck"
    state = fleet("assistant", spec_of(new), UID, hung.store.owned(KEY), hung.store.pods(KEY))
    assert state.speculative.serving
    assert state.speculative.stuck


def test_an_edit_back_takes_the_first_pool_back_and_leaves_the_other_alone() -> None:
    old, new = spec(), spec("0.33.0")
    hung = Cluster(baseline=old)
    hung.deployment("ngram", new, ready=False, overdue=True)
    found = hung.upgrade(old, both(old).upgrade(new).status)
    assert found.changed == {"ngram"}
    assert found.waits == {}
    assert found.status is not None
    assert (found.status.state, found.status.changes) == ("Rolling", "release 0.33.0 -> 0.32.0")


def test_a_move_of_weights_is_waited_for() -> None:
    found = both(spec()).upgrade(spec(tokens=5), moving=True)
    assert found.waits == {"ngram": "routers are taking over what was decided last"}
    assert found.status is not None
    assert found.status.state == "Waiting"
    assert not found.redrafted


@pytest.mark.parametrize(
    ("change", "redrafted"),
    [
        ({"version": "0.33.0"}, False),
        ({"tokens": 5}, True),
        ({"ngram": {"minMatch": 3, "maxMatch": 4}}, True),
        ({"preflight": "Warn"}, False),
    ],
)
def test_what_was_counted_is_forgotten_where_other_tokens_are_drafted(change: dict[str, Any], redrafted: bool) -> None:
    assert both(spec()).upgrade(spec(**change)).redrafted is redrafted


def test_a_draft_of_another_name_forgets_too() -> None:
    named = owner(drafts=[{"name": "other", "mode": "NGram"}])
    found = both(spec()).upgrade(named)
    assert found.redrafted
    assert found.changed == frozenset()


def test_no_secret_and_no_private_value_is_told() -> None:
    def engine(secret: str, length: str) -> Body:
        args = {"max-model-len": length, "otlp-traces-endpoint": f"https://user:{secret}@traces"}
        env = [{"name": "MY_PASSWORD", "value": secret}]
        return owner(engine={"type": "vLLM", "version": "0.32.0", "args": args, "env": env})

    found = both(engine("first", "4096")).upgrade(engine("second", "8192")).status
    assert found is not None
    assert found.changes == (
        "engine.args.max-model-len 4096 -> 8192, engine.args.otlp-traces-endpoint changed, "
        "engine.env.MY_PASSWORD changed"
    )


def test_a_long_list_of_changes_is_cut() -> None:
    def env(value: str) -> Body:
        given = [{"name": f"X{number}", "value": value} for number in range(7)]
        return owner(engine={"type": "vLLM", "version": "0.32.0", "env": given})

    found = both(env("1")).upgrade(env("2")).status
    assert found is not None
    assert found.changes.endswith("engine.env.X3 changed and 3 more")


def test_annotations_that_somebody_has_spoilt_do_no_harm() -> None:
    for spoilt in ("[" * 100_000, "{", '["a"]', json.dumps({"release": "9" * 5000, "model": "m" * 5000})):
        cluster = both(spec())
        for key, record in cluster.store.owned(KEY).items():
            cluster.store.owned(KEY)[key] = replace(record, runs=spoilt)
        found = cluster.upgrade(spec("0.33.0")).status
        assert found is not None
        assert found.pool == "ngram"


def test_deployments_of_a_release_without_annotations_are_compared_by_their_template() -> None:
    def cluster() -> Cluster:
        found = Cluster()
        for pool in POOLS:
            found.deployment(pool, spec(), noted=False)
        return found

    assert cluster().upgrade(spec()) == Upgrade()
    found = cluster().upgrade(spec("0.33.0"))
    assert found.changed == {"ngram", "baseline"}
    assert found.status is not None
    assert found.status.changes == "what specfleet renders for the engines"


def test_a_refused_draft_leaves_both_pools_as_they_are_and_decisions_go_on() -> None:
    found = both(spec()).upgrade(spec("0.33.0", tokens=5), held=UNFIT)
    assert set(found.waits) == {"ngram", "baseline"}
    assert not found.frozen
    assert not found.redrafted
    compared = both(spec()).upgrade(spec("0.33.0"), held=Problem(Reason.PREFLIGHT_RUNNING, "being compared"))
    assert set(compared.waits) == {"ngram", "baseline"}


def test_baseline_alone_is_rolled_by_a_pod_more_not_less() -> None:
    found = Cluster(baseline=spec()).upgrade(spec("0.33.0"), held=UNFIT)
    assert (found.waits, found.alone) == ({}, True)
    body = spec("0.33.0")
    objects = RENDERER.render(body, spec_of(body), {}, held=True, alone=True).objects
    strategies = [one["spec"]["strategy"] for one in objects if one["metadata"]["name"] == "assistant-baseline"
                  and one["kind"] == "Deployment"]  # fmt: skip
    assert strategies == [{"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}]


def test_a_waiting_pool_keeps_its_template_and_is_scaled_all_the_same() -> None:
    old, new = spec(), spec("0.33.0", replicas=5)
    cluster = both(old)
    wanted = RENDERER.render(new, spec_of(new), {}).objects
    actions = plan(new, wanted, cluster.store.owned(KEY), {}, waiting={"baseline": 2})
    deployments = [one for one in actions.applies if one.kind == DEPLOYMENT]
    assert [one.id[1] for one in deployments if one.why == "Change"] == ["assistant-ngram"]
    assert [(one.name, one.replicas) for one in actions.scales] == [("assistant-baseline", 2)]
    assert (DEPLOYMENT, "assistant-baseline") in actions.wanted
    assert any(one.kind == CONFIG_MAP for one in actions.applies), "routers are told as ever"


def test_an_upgrade_freezes_evidence_for_either_pool() -> None:
    cluster = both(spec())
    state = fleet("assistant", spec_of(spec()), UID, cluster.store.owned(KEY), cluster.store.pods(KEY))
    assert hold_for(state, None, False) is None
    assert hold_for(state, None, False, upgrading=True) is Hold.ROLLOUT_IN_PROGRESS


def test_a_size_that_is_learned_late_rolls_no_pod_that_serves() -> None:
    running = both(spec()).upgrade(spec(), start_seconds=7200)
    assert running.changed == frozenset()
    assert running.starts["baseline"] == Start(probe_seconds=0, deadline_seconds=7200)
    changing = both(spec()).upgrade(spec("0.33.0"), start_seconds=7200)
    assert changing.starts["ngram"] == Start(7200, 7200)


def test_a_pool_that_has_not_come_up_is_given_the_time_at_once() -> None:
    loading = Cluster(ngram=spec())
    loading.deployment("baseline", spec(), ready=False)
    found = loading.upgrade(spec(), start_seconds=7200)
    assert found.starts["baseline"] == Start(7200, 7200)
    assert found.starts["ngram"].probe_seconds == 0


def test_the_start_up_probe_is_in_the_template_and_no_reason_to_roll() -> None:
    body = spec()
    starts = {"baseline": Start(7200, 7200), "ngram": Start(0, 7200)}
    found: dict[str, Any] = {
        one["metadata"]["name"]: one
        for one in RENDERER.render(body, spec_of(body), {}, starts=starts).objects
        if one["kind"] == "Deployment"
    }
    probes = [found[f"assistant-{pool}"]["spec"]["template"]["spec"]["containers"][0]["startupProbe"] for pool in POOLS]
    assert [one["failureThreshold"] * one["periodSeconds"] for one in probes] == [1800, 7200]
    deadlines = [found[f"assistant-{pool}"]["spec"]["progressDeadlineSeconds"] for pool in POOLS]
    assert deadlines == [8100, 8100]
    cluster = Cluster(ngram=body)
    cluster.store.put_owned(DEPLOYMENT, live(owned_manifest(found["assistant-baseline"], body)))
    later = cluster.upgrade(body, start_seconds=0)
    assert later.changed == frozenset()
    assert later.starts["baseline"].probe_seconds == 7200
