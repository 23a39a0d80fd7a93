"""What is written, what is left alone, and what is pruned."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api import names
from specfleet.cluster.applied import ANNOTATION_APPLIED
from specfleet.cluster.kinds import CONFIG_MAP, DEPLOYMENT, SERVICE
from specfleet.handlers.observed import Observed
from specfleet.handlers.plan import Plan, owned_manifest, plan
from tests.unit.handlers.samples import UID, live, owner

KEY = ("serving", "assistant")


def config_map(name: str = "assistant-routes", **data: str) -> dict[str, Any]:
    labels = names.labels("assistant", "routes")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data}


def seen(*bodies: dict[str, Any]) -> Observed:
    observed = Observed()
    for body in bodies:
        observed.put_owned(CONFIG_MAP, body)
    return observed


def planned(observed: Observed, *wanted: dict[str, Any], verified: Any = None) -> Plan:
    return plan(owner(), wanted, observed.owned(KEY), verified or {})


def test_what_does_not_exist_is_created_with_owner_and_digest() -> None:
    (apply,) = planned(seen(), config_map(a="1")).applies
    meta = apply.manifest["metadata"]
    assert apply.why == "Create"
    assert meta["namespace"] == "serving"
    assert meta["ownerReferences"][0]["uid"] == UID
    assert meta["ownerReferences"][0]["controller"] is True
    assert ANNOTATION_APPLIED in meta["annotations"]


def test_what_is_as_wanted_is_not_written() -> None:
    found = live(owned_manifest(config_map(a="1"), owner()))
    result = planned(seen(found), config_map(a="1"))
    assert result.applies == ()
    assert [record.name for record, _ in result.agree] == ["assistant-routes"]


def test_what_is_wanted_otherwise_is_written_to_that_very_object() -> None:
    found = live(owned_manifest(config_map(a="1"), owner()), uid="uid-cm")
    (apply,) = planned(seen(found), config_map(a="2")).applies
    assert (apply.why, apply.uid) == ("Change", "uid-cm")


def test_a_key_that_is_no_longer_wanted_is_a_change() -> None:
    found = live(owned_manifest(config_map(a="1", b="2"), owner()))
    (apply,) = planned(seen(found), config_map(a="1")).applies
    assert apply.why == "Change"


def test_an_edit_of_our_field_is_drift_and_names_the_field() -> None:
    found = live(owned_manifest(config_map(a="1"), owner()), data={"a": "edited"})
    (apply,) = planned(seen(found), config_map(a="1")).applies
    assert (apply.why, apply.fields) == ("Drift", ("data.a",))


def test_what_others_add_is_no_drift() -> None:
    manifest = owned_manifest(config_map(a="1"), owner())
    manifest["metadata"]["labels"] = {**manifest["metadata"]["labels"], "theirs": "x"}
    assert planned(seen(live(manifest, data={"a": "1", "theirs": "2"})), config_map(a="1")).applies == ()


def test_hashes_that_were_compared_before_need_no_body() -> None:
    observed = seen(live(owned_manifest(config_map(a="1"), owner())))
    first = planned(observed, config_map(a="1"))
    ((record, digest),) = first.agree
    observed.compared(KEY, record)
    assert observed.owned(KEY)[CONFIG_MAP, "assistant-routes"].body is None
    again = planned(observed, config_map(a="1"), verified={(CONFIG_MAP, record.name): (digest, record.live)})
    assert again.applies == ()


@pytest.mark.parametrize("references", [[], [{"uid": "another", "controller": True}], [{"uid": UID}]])
def test_an_object_that_we_do_not_control_is_taken(references: list[dict[str, Any]]) -> None:
    found = live(config_map(a="1"))
    found["metadata"]["ownerReferences"] = references
    result = planned(seen(found), config_map(a="1"))
    assert result.applies == ()
    assert [str(one) for one in result.taken] == ["ConfigMap assistant-routes"]


def test_pruning_takes_what_we_control_and_nothing_with_our_labels_only() -> None:
    ours = live(owned_manifest(config_map("assistant-old", a="1"), owner()), uid="uid-old")
    theirs = live(config_map("stranger", a="1"))
    result = planned(seen(ours, theirs), config_map(a="1"))
    assert [(one.name, one.uid) for one in result.deletes] == [("assistant-old", "uid-old")]


def test_what_is_being_deleted_is_waited_for() -> None:
    found = live(owned_manifest(config_map(a="1"), owner()))
    found["metadata"]["deletionTimestamp"] = "2026-11-29T09:00:00Z"
    result = planned(seen(found), config_map(a="2"))
    assert (result.applies, result.deletes) == ((), ())


def test_what_pods_mount_is_written_before_the_pods() -> None:
    labels = names.labels("assistant", "engine")
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "assistant-a", "labels": labels}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "assistant", "labels": labels}}
    result = planned(seen(), workload, service, config_map(a="1"))
    assert [apply.kind for apply in result.applies] == [CONFIG_MAP, SERVICE, DEPLOYMENT]
    assert result.workloads_pending
