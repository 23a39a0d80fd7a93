"""What the store keeps of the watches, and when it asks for a look."""

from __future__ import annotations

from specfleet.cluster.kinds import DEPLOYMENT, POD, SPEC_DEPLOYMENT
from specfleet.handlers.observed import Observed, newer
from tests.unit.handlers.samples import deployment, owner, pod

KEY = ("serving", "assistant")


def test_a_status_that_was_written_by_us_wakes_nobody() -> None:
    observed = Observed()
    body = owner()
    assert observed.put_deployment(body) == KEY
    written = {**body, "metadata": {**body["metadata"], "resourceVersion": "9000"}, "status": {"observedGeneration": 1}}
    observed.put_deployment(written)
    assert observed.put_deployment(written) is None
    assert observed.deployment(KEY) == written


def test_an_older_body_never_replaces_a_newer_one() -> None:
    observed = Observed()
    body = owner()
    late = {**body, "metadata": {**body["metadata"], "resourceVersion": "99999"}, "status": {"observedGeneration": 5}}
    observed.put_deployment(late)
    assert observed.put_deployment(body) is None
    assert observed.deployment(KEY) == late


def test_a_status_that_somebody_else_wrote_is_looked_at() -> None:
    observed = Observed()
    body = owner()
    observed.put_deployment(body)
    other = {**body, "metadata": {**body["metadata"], "resourceVersion": "9001"}, "status": {"observedGeneration": 7}}
    assert observed.put_deployment(other) == KEY


def test_a_new_object_of_an_old_name_replaces_the_old_one_whatever_its_version() -> None:
    observed = Observed()
    observed.put_deployment(owner())
    fresh = owner()
    fresh["metadata"] |= {"uid": "uid-2", "resourceVersion": "1"}
    assert observed.put_deployment(fresh) == KEY
    assert observed.deployment(KEY) == fresh


def test_only_news_of_a_workload_wakes() -> None:
    observed = Observed()
    assert observed.put_owned(DEPLOYMENT, deployment("assistant-ngram", "engine", "ngram")) == KEY
    assert observed.put_owned(DEPLOYMENT, deployment("assistant-ngram", "engine", "ngram")) is None
    unready = deployment("assistant-ngram", "engine", "ngram", readyReplicas=0)
    assert observed.put_owned(DEPLOYMENT, unready) == KEY


def test_an_object_without_our_label_is_forgotten_and_looked_for() -> None:
    observed = Observed()
    observed.put_owned(DEPLOYMENT, deployment("assistant-ngram", "engine", "ngram"))
    bare = deployment("assistant-ngram", "engine", "ngram")
    bare["metadata"]["labels"] = {}
    assert observed.put_owned(DEPLOYMENT, bare) == KEY
    assert observed.owned(KEY) == {}


def test_pods_come_and_go() -> None:
    observed = Observed()
    body = pod("a", "engine", "ngram")
    assert observed.put_pod(body) == KEY
    assert observed.put_pod(pod("a", "engine", "ngram")) is None
    assert [one.name for one in observed.pods(KEY)] == ["a"]
    assert observed.remove(POD, body) == KEY
    assert observed.remove(POD, body) is None
    assert observed.pods(KEY) == []


def test_a_late_deletion_does_not_remove_the_successor() -> None:
    observed = Observed()
    old, new = pod("a", "engine", "ngram"), pod("a", "engine", "ngram")
    new["metadata"]["uid"] = "uid-new"
    observed.put_pod(old)
    observed.put_pod(new)
    observed.remove(POD, old)
    assert [one.uid for one in observed.pods(KEY)] == ["uid-new"]


def test_what_a_new_list_does_not_show_is_gone() -> None:
    observed = Observed()
    observed.put_deployment(owner())
    for name in ("a", "b"):
        observed.put_pod(pod(name, "engine", "ngram"))
    assert observed.relisted(POD, [("serving", "a", "uid-of-a")]) == [KEY]
    assert [one.name for one in observed.pods(KEY)] == ["a"]
    assert observed.relisted(SPEC_DEPLOYMENT, []) == [KEY]
    assert observed.deployments() == []


def test_versions_compare_as_numbers() -> None:
    assert newer("100", "99")
    assert not newer("99", "100")
    assert not newer("7", "7")


def test_the_late_answer_to_a_write_does_not_bring_back_what_is_gone() -> None:
    observed = Observed()
    answer = deployment("assistant-ngram", "engine", "ngram")
    end = deployment("assistant-ngram", "engine", "ngram")
    observed.put_owned(DEPLOYMENT, answer)
    observed.remove(DEPLOYMENT, end)
    assert observed.put_owned(DEPLOYMENT, answer) is None
    assert observed.owned(KEY) == {}
    labelled_again = deployment("assistant-ngram", "engine", "ngram")
    assert observed.put_owned(DEPLOYMENT, labelled_again) == KEY
