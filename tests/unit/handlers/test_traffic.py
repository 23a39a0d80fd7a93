"""A route that status has forgotten stays where its traffic goes."""

from __future__ import annotations

import pytest

from specfleet.api.names import routes_object
from specfleet.cluster.kinds import CONFIG_MAP, Kind
from specfleet.handlers.decide import states_of
from specfleet.handlers.observed import OwnedRecord, owned_record
from specfleet.handlers.rendered import SpecRenderer
from specfleet.handlers.traffic import traffic
from specfleet.metrics.direct import Served
from specfleet.settings import OperatorSettings
from tests.unit.handlers.samples import live, owner, spec_of

NOW = 1_800_000_000.0


def files(**shares: int) -> dict[tuple[Kind, str], OwnedRecord]:
    """What is watched of the ConfigMap that routers mount with these shares."""
    body = owner()
    rendered = SpecRenderer(OperatorSettings()).render(body, spec_of(body), shares)
    found = next(one for one in rendered.objects if one["metadata"]["name"] == routes_object("assistant"))
    record = owned_record(CONFIG_MAP, live(dict(found)))
    return {(record.kind, record.name): record}


def test_routers_that_agree_go_before_their_files() -> None:
    owned = files(code=100, chat=100)
    answers = [Served("v2", {"code": 100, "chat": 4}), Served("v2", {"code": 100, "chat": 4})]
    assert traffic(answers, owned, "assistant", "ngram") == {"code": 100, "chat": 4}


def test_where_no_router_answers_or_they_differ_their_files_say_it() -> None:
    owned = files(code=100, chat=4)
    assert traffic([], owned, "assistant", "ngram") == {"code": 100, "chat": 4}
    answers = [Served("v1", {"code": 100, "chat": 100}), Served("v2", {"code": 100, "chat": 4})]
    assert traffic(answers, owned, "assistant", "ngram") == {"code": 100, "chat": 4}
    assert traffic([Served("v1", {"code": 0}), Served("v2", {})], {}, "assistant", "ngram") == {}


@pytest.mark.parametrize("rds", ["", "[", "resources: []", "resources: [{virtual_hosts: [{routes: [{}]}]}]"])
def test_files_that_are_not_ours_say_nothing(rds: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": routes_object("assistant")},
        "data": {"rds.yaml": rds},
    }
    record = owned_record(CONFIG_MAP, live(body))
    assert traffic([], {(record.kind, record.name): record}, "assistant", "ngram") == {}


def test_a_forgotten_route_stays_and_its_dwell_begins_anew() -> None:
    spec = spec_of(owner())  # initial: Speculative
    states = states_of(spec, {}, {}, NOW, {"chat": 10, "code": 50})
    assert (states["chat"].served, states["chat"].mode, states["chat"].since) == ("baseline", "baseline", NOW)
    assert states["chat"].percent == 10  # also while nothing can be read, which freezes the share
    assert (states["code"].served, states["code"].mode) == ("speculative", "speculative")
    assert states_of(spec, {}, {}, NOW, {"other": 0})["chat"].served == "speculative"
