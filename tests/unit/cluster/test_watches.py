"""A watch that nobody opens again is silent."""

from __future__ import annotations

from specfleet.cluster.kinds import DEPLOYMENT, POD, SPEC_DEPLOYMENT, Kind
from specfleet.cluster.watches import WatchHealth

PODS = "/api/v1/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/a/deployments"


def health(now: list[float], relisted: list[Kind] | None = None) -> WatchHealth:
    return WatchHealth(
        60.0,
        (relisted if relisted is not None else []).append,
        clock=lambda: now[0],
        kinds=(POD, DEPLOYMENT),
    )


def test_all_is_complete_once_each_kind_is_watched() -> None:
    one = health([0.0])
    one.requested(PODS, watch=False)
    one.requested(PODS, watch=True)
    assert not one.complete
    one.requested(DEPLOYMENTS, watch=True)
    assert one.complete


def test_a_watch_that_is_not_opened_again_within_two_timeouts_is_silent() -> None:
    now = [0.0]
    one = health(now)
    one.requested(PODS, watch=True)
    one.requested(DEPLOYMENTS, watch=True)
    for moment in (60.0, 120.0, 180.0):
        now[0] = moment
        one.requested(PODS, watch=True)
    assert one.silent() == ["deployments"]


def test_a_watch_that_was_never_opened_is_silent_after_the_same_time() -> None:
    now = [0.0]
    one = health(now)
    assert one.silent() == []
    now[0] = 136.0
    assert one.silent() == ["pods", "deployments"]


def test_a_second_listing_is_told_and_the_first_is_not() -> None:
    relisted: list[Kind] = []
    one = health([0.0], relisted)
    one.requested(PODS, watch=False)
    one.requested(PODS, watch=True)
    assert relisted == []
    one.requested(PODS, watch=False)
    assert relisted == [POD]


def test_other_paths_are_nobody_s_watch() -> None:
    one = health([0.0])
    for path in ("/api/v1/namespaces/a/pods/x", "/apis/apps/v1", "/version", SPEC_DEPLOYMENT.all_path):
        one.requested(path, watch=True)
    assert not one.complete
    assert len(one.silent()) == 0
