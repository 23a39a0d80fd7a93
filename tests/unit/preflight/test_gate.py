"""What the operator makes of Jobs, their pods and kept verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api import names
from specfleet.api.conditions import Reason
from specfleet.api.status import PreflightStatus
from specfleet.api.times import timestamp
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.cluster.kinds import DEPLOYMENT, JOB
from specfleet.engines.registry import engine_module
from specfleet.handlers.fleet import fleet, readiness
from specfleet.handlers.observed import Observed
from specfleet.handlers.plan import plan
from specfleet.handlers.preflight import Gate, Wanted, gate
from specfleet.preflight.request import PreflightRequest, preflight_request
from specfleet.preflight.verdict import Check, Level, PreflightFinding, Verdict
from specfleet.render.preflight import preflight_job
from specfleet.settings import OperatorSettings
from tests.unit.handlers.samples import UID, deployment, live, owner, pod, spec_of

Body = dict[str, Any]
KEY = ("serving", "assistant")
MADE = 1_796_000_000.0
CREATED = timestamp(MADE)
DRAFT = {"name": "small", "mode": "DraftModel", "model": "team/small"}


def body(**draft: Any) -> Body:
    return owner(drafts=[DRAFT | draft])


def asked(**draft: Any) -> PreflightRequest:
    found = preflight_request(SpecDeployment.parse(body(**draft)))
    assert found is not None
    return found


def job(*conditions: Body, uid: str = UID) -> Body:
    name = names.preflight_object("assistant", asked().key)
    meta = {"name": name, "labels": names.labels("assistant", "preflight")}
    made = live({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta}, status={"conditions": list(conditions)})
    made["metadata"] |= {"creationTimestamp": CREATED, "ownerReferences": [{"uid": uid, "controller": True}]}
    return made


def ended_pod(message: str | None, name: str = "p", key: str = "", code: int = 0) -> Body:
    made = pod(name, "preflight", None, ready=False)
    made["metadata"]["labels"][names.LABEL_PREFLIGHT] = key or asked().key
    state = {} if message is None else {"terminated": {"exitCode": code, "message": message}}
    made["status"] = {"containerStatuses": [{"name": "preflight", "state": state}]}
    return made


def told(*findings: tuple[Level, str]) -> str:
    return Verdict.of([PreflightFinding(Check.TOKENIZER, level, message) for level, message in findings]).encode()


def looked(
    *bodies: Body,
    after: float = 1.0,
    known: PreflightStatus | None = None,
    limit: float = 600.0,
    wanted: Wanted | None = None,
    **draft: Any,
) -> Gate:
    store = Observed()
    for one in bodies:
        if one.get("kind") == "Job":
            store.put_owned(JOB, one)
        else:
            store.put_pod(one)
    spec, request = spec_of(body(**draft)), asked(**draft)
    owned, pods = store.owned(KEY), store.pods(KEY)
    return gate("assistant", spec, request, known, owned, pods, MADE + after, limit, wanted=wanted)


def test_without_a_verdict_the_pool_waits_and_the_job_is_wanted() -> None:
    found = looked()
    assert (found.run, found.record) == (True, None)
    assert found.held is not None
    assert found.held.reason is Reason.PREFLIGHT_RUNNING
    assert found.next_look == 600.0
    assert looked(job(), after=100.0).next_look == 500.0


def test_a_job_that_is_refused_for_good_ends_as_a_warning_that_says_why() -> None:
    refused = Wanted(MADE, "jobs.batch is forbidden: exceeded quota")
    waiting = looked(after=599.0, wanted=refused)
    assert waiting.said is not None
    assert (waiting.run, waiting.next_look) == (True, 1.0)
    assert "exceeded quota" in waiting.said.message
    late = looked(after=600.0, wanted=refused)
    assert late.said is not None
    assert (late.said.status, late.said.reason) == ("Unknown", Reason.PREFLIGHT_TIMED_OUT)
    assert "within 600 s: jobs.batch is forbidden: exceeded quota; the speculative pool is made" in late.said.message
    assert (late.run, late.held) == (False, None)


def test_a_job_that_came_to_be_has_its_own_time_and_troubles() -> None:
    found = looked(job(), after=100.0, wanted=Wanted(MADE - 550.0, "exceeded quota"))
    assert found.said is not None
    assert (found.run, found.next_look) == (True, 500.0)
    assert "quota" not in found.said.message


@pytest.mark.parametrize(
    ("message", "status", "reason", "held"),
    [
        (told(), "True", Reason.DRAFT_FITS, False),
        (told((Level.WARNING, "other merges")), "True", Reason.DRAFT_FITS, False),
        (told((Level.ERROR, "3 tokens differ")), "False", Reason.DRAFT_INCOMPATIBLE, True),
    ],
)
def test_a_verdict_is_kept_and_the_job_no_longer_wanted(message: str, status: str, reason: Reason, held: bool) -> None:
    found = looked(job(), ended_pod(message))
    assert found.record is not None
    assert found.said is not None
    assert (found.said.status, found.said.reason) == (status, reason)
    assert (found.run, found.held is not None) == (False, held)
    again = looked(known=found.record)
    assert (again.said, again.run, again.held) == (found.said, False, found.held)


def test_warn_holds_nothing() -> None:
    found = looked(ended_pod(told((Level.ERROR, "differs")), key=asked(preflight="Warn").key), preflight="Warn")
    assert found.said is not None
    assert (found.said.status, found.held) == ("False", None)
    assert looked(preflight="Warn").held is None


def test_a_verdict_about_something_else_does_not_count() -> None:
    known = looked(job(), ended_pod(told())).record
    assert looked(known=known, tokens=7).run
    assert looked(ended_pod(told(), key="another")).run


def test_unknown_is_tried_again_and_a_later_verdict_wins() -> None:
    first = ended_pod(told((Level.UNKNOWN, "the Hub does not answer")), "a", code=1)
    assert looked(job(), first).run
    assert looked(job(), first, ended_pod(told(), "b")).said == looked(job(), ended_pod(told())).said


@pytest.mark.parametrize(
    ("bodies", "after", "reason", "words"),
    [
        ((job(),), 600.0, Reason.PREFLIGHT_TIMED_OUT, "within 600 s: its Job got no pod"),
        ((job(), ended_pod(None)), 600.0, Reason.PREFLIGHT_TIMED_OUT, "within 600 s: its pod has not ended"),
        (
            (job(), ended_pod(told((Level.UNKNOWN, "the Hub is away")), code=1)),
            601.0,
            Reason.PREFLIGHT_TIMED_OUT,
            "the Hub is away",
        ),
        (
            (job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}),),
            599.0,
            Reason.PREFLIGHT_TIMED_OUT,
            "no verdict within",
        ),
        (
            (
                job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}),
                ended_pod(told((Level.UNKNOWN, "team/small is gated")), code=1),
            ),
            60.0,
            Reason.PREFLIGHT_INCONCLUSIVE,
            "Team/small is gated",
        ),
        (
            (job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}), ended_pod("boom", code=1)),
            60.0,
            Reason.PREFLIGHT_INCONCLUSIVE,
            "BackoffLimitExceeded",
        ),
        (
            (job({"type": "Complete", "status": "True"}), ended_pod("{}" * 4000)),
            60.0,
            Reason.PREFLIGHT_INCONCLUSIVE,
            "no verdict",
        ),
    ],
    ids=["no-pod", "late", "late-unread", "deadline", "unread", "crash", "garbage"],
)
def test_without_a_verdict_there_is_a_warning_and_nothing_is_held(
    bodies: tuple[Body, ...], after: float, reason: Reason, words: str
) -> None:
    found = looked(*bodies, after=after)
    assert found.said is not None
    assert (found.said.status, found.said.reason, found.held) == ("Unknown", reason, None)
    assert words in found.said.message
    assert "the speculative pool is made all the same" in found.said.message


def test_a_job_that_is_complete_before_its_pod_is_seen_is_waited_for() -> None:
    assert looked(job({"type": "Complete", "status": "True"})).run


def test_a_held_pool_is_named_and_what_runs_is_not_touched() -> None:
    found = looked(ended_pod(told((Level.ERROR, "differs"))))
    store = Observed()
    for name, component, pool in (("assistant-baseline", "engine", "baseline"), ("assistant-small", "engine", "small")):
        store.put_owned(DEPLOYMENT, deployment(name, component, pool))
        store.put_pod(pod(f"{name}-0", component, pool))
    spec = spec_of(body())
    state = fleet("assistant", spec, UID, store.owned(KEY), store.pods(KEY), held=found.held)
    assert state.speculative.serving
    assert not state.speculative.rolled_out
    kept = found.kept("assistant", "small")
    assert plan(owner(), [], store.owned(KEY), {}, kept).deletes[0].name == "assistant-baseline"
    assert [one.name for one in plan(owner(), [], store.owned(KEY), {}, kept).deletes] == ["assistant-baseline"]
    gone = Observed()
    nothing = fleet("assistant", spec, UID, gone.owned(KEY), gone.pods(KEY), held=found.held)
    assert "Pool small: 0 of 1 ready; differs." in readiness(nothing)[2]


def test_the_job_reads_what_engines_read_and_gets_nothing_else() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "models", "path": "llama"}}
    changed = body()
    changed["spec"] |= {
        "target": {"model": "team/target", "source": {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "t"}}}},
        "drafts": [{"name": "small", "mode": "DraftModel", "model": "/models/small", "source": claim}],
        "pools": {
            "replicas": 2,
            "storage": {"cache": {"persistentVolumeClaim": "cache"}},
            "template": {"spec": {"nodeSelector": {"zone": "a"}, "imagePullSecrets": [{"name": "pull"}]}},
        },
    }
    changed["spec"]["engine"]["env"] = [
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "MY_SECRET", "value": "not for the Job"},
    ]
    made = SpecDeployment.parse(changed)
    request = preflight_request(made)
    assert request is not None
    facts = engine_module(made.spec.engine.type).facts(made, speculative=True)
    rendered = preflight_job(made, request, facts, OperatorSettings(preflight_seconds=77), None)
    assert rendered["spec"]["activeDeadlineSeconds"] == 77 + 60
    spec = rendered["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["nodeSelector"] == {"zone": "a"}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    (container,) = spec["containers"]
    assert container["image"] == OperatorSettings().operator_image
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    mounts = {one["mountPath"]: (one["name"], one["readOnly"], one.get("subPath")) for one in container["volumeMounts"]}
    assert mounts["/models/small"] == ("draft", True, "llama")
    assert mounts[facts.cache_mount] == ("cache", True, None)
    environment = {one["name"]: one for one in container["env"]}
    assert environment["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "t"}
    assert environment["HTTPS_PROXY"]["value"] == "http://proxy:3128"
    assert environment["SPECFLEET_PREFLIGHT"]["value"] == request.encode()
    assert environment["SPECFLEET_PREFLIGHT_CACHE"]["value"] == facts.cache_mount
    assert "MY_SECRET" not in environment


@pytest.mark.parametrize("length", [1, 16, 45])
def test_names_of_jobs_fit_into_labels(length: int) -> None:
    name = names.preflight_object("a" * length, asked().key)
    assert len(name) <= 63
    assert name.startswith("a" * length + "-preflight-" + asked().key[:6])
