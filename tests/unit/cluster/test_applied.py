"""Comparing what is wanted with what lives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.cluster.applied import (
    ANNOTATION_APPLIED,
    differences,
    digest,
    packed,
    projection,
    stamped,
    unpacked,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("wanted", "live", "paths"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": {"b": 1}}, {}, ["a"]),
        ({"a": {}}, {}, []),
        ({"a": ""}, {}, []),
        ({"a": [1, 2]}, {"a": [1]}, ["a"]),
        ({"a": [{"n": 1}]}, {"a": [{"n": 1, "defaulted": True}]}, []),
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, []),
        ({"cpu": "0.5"}, {"cpu": "500m"}, []),
        ({"cpu": "0.5"}, {"cpu": "600m"}, ["cpu"]),
        ({"port": 8000}, {"port": "8000"}, []),
        ({"on": True}, {"on": 1}, []),
        ({"on": True}, {"on": "true"}, ["on"]),
        ({"version": "1.0"}, {"version": "1.1"}, ["version"]),
    ],
)
def test_only_fields_that_we_set_are_compared(wanted: Any, live: Any, paths: list[str]) -> None:
    assert list(differences(wanted, live)) == paths


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_a_value_never_differs_from_itself(value: dict[str, Any]) -> None:
    assert list(differences(value, value)) == []
    assert unpacked(packed(value)) == value


def test_the_projection_leaves_out_what_the_server_and_controllers_keep() -> None:
    live = {
        "metadata": {
            "name": "a",
            "resourceVersion": "7",
            "generation": 3,
            "managedFields": [],
            "annotations": {"deployment.kubernetes.io/revision": "4", "mine": "x"},
        },
        "spec": {"replicas": 1},
        "status": {"replicas": 1},
    }
    assert projection(live) == {"metadata": {"name": "a", "annotations": {"mine": "x"}}, "spec": {"replicas": 1}}


def test_the_stamp_is_stable_and_tells_manifests_apart() -> None:
    one = {"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    same = {"data": {"y": "2", "x": "1"}, "metadata": {"name": "a"}}
    other = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    assert stamped(one)["metadata"]["annotations"] == {ANNOTATION_APPLIED: digest(one)}
    assert digest(one) == digest(same) != digest(other)
