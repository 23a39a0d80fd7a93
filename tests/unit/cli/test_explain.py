"""The story that `specfleet explain` tells of a status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specfleet.cli.explain import ExplainError, json_text, text

BODY: dict[str, Any] = {
    "metadata": {"name": "demo", "namespace": "serving", "generation": 3},
    "spec": {"policy": {"enforcement": "Enforce"}},
    "status": {
        "observedGeneration": 3,
        "endpoint": "http://demo.serving.svc",
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-11-29T09:00:00Z",
                "observedGeneration": 3,
            }
            for kind, status, reason, message in (
                ("Ready", "True", "Available", "Both pools and the router serve."),
                ("MetricsAvailable", "False", "RoutersUnreachable", "No router answers; the last decision holds."),
                ("Moving", "False", "Settled", "Every router serves what was decided."),
            )
        ],
        "pools": [{"name": "baseline", "desired": 1, "ready": 1}, {"name": "ngram", "desired": 3, "ready": 2}],
        "routes": [
            {
                "name": "chat",
                "pool": "baseline",
                "phase": "Exploring",
                "reason": "BelowBreakEven",
                "message": "1.12 tokens a step [1.08, 1.16] over 340 requests; 1.41 needed to pay.",
                "speculativePercent": {"intended": 4, "served": 4},
                "acceptancePercent": 11,
                "tokensPerStep": "1.12",
                "breakEven": {"tokensPerStep": "1.41", "state": "Fixed"},
                "evidence": {
                    "line": "BreakEven",
                    "score": "0.4",
                    "threshold": "6.9",
                    "requests": 12,
                    "coveragePercent": 97,
                },
                "since": "2026-11-29T09:12:04Z",
                "history": [
                    {"at": "2026-11-29T09:12:04Z", "pool": "baseline", "reason": "BelowBreakEven", "message": "1.10."}
                ],
                "state": "1;opaque",
            },
            {
                "name": "code",
                "pool": "ngram",
                "phase": "Settled",
                "reason": "Pays",
                "message": "3.30 tokens a step.",
                "speculativePercent": {"intended": 100},
                "since": "2026-11-29T08:00:00Z",
            },
        ],
    },
}


def changed(**parts: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(BODY))
    for name, value in parts.items():
        body[name].update(value)
    return body


def test_the_whole_story() -> None:
    assert list(text(BODY)) == [
        "serving/demo is ready; 1 of 2 route(s) are served with speculation.",
        "Endpoint: http://demo.serving.svc",
        "Pools: baseline 1 of 1 ready, ngram 2 of 3 ready",
        "",
        "Route chat is served by pool baseline, without speculation, since 2026-11-29T09:12:04Z "
        "(Exploring, BelowBreakEven).",
        "  1.12 tokens a step [1.08, 1.16] over 340 requests; 1.41 needed to pay.",
        "  4 % of its traffic goes to speculation; every router serves that.",
        "  11 % of drafted tokens accepted; 1.12 tokens a decode step (1.41 needed); evidence towards back on: "
        "0.4 of 6.9 on line BreakEven, 12 request(s); 97 % of answers carried figures.",
        "  Switches, newest first:",
        "    2026-11-29T09:12:04Z to baseline (BelowBreakEven): 1.10.",
        "",
        "Route code is served by pool ngram, with speculation, since 2026-11-29T08:00:00Z (Settled, Pays).",
        "  3.30 tokens a step.",
        "  100 % of its traffic is meant for speculation; what routers serve is not known now.",
        "",
        "What needs a look:",
        "  MetricsAvailable=False (RoutersUnreachable): No router answers; the last decision holds.",
    ]


def test_one_route_alone() -> None:
    told = list(text(BODY, "code"))
    assert told[0].startswith("Route code is served by pool ngram")
    assert not any("Route chat" in line for line in told)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"tokensPerStep": "1.41", "state": "Known"}, "1.12 tokens a decode step (1.41 needed)"),
        ({"tokensPerStep": "1.66", "state": "Prior"}, "1.12 tokens a decode step (1.66 expected, not measured yet)"),
        ({"state": "Prior"}, "1.12 tokens a decode step;"),
    ],
)
def test_what_a_route_needs_is_said_with_whether_it_was_measured(line: dict[str, str], told: str) -> None:
    [chat, code] = BODY["status"]["routes"]
    shown = "\n".join(text(changed(status={"routes": [{**chat, "breakEven": line}, code]})))
    assert told in shown
    assert "None" not in shown


def test_observe_and_an_unseen_edit_are_said() -> None:
    told = list(text(changed(spec={"policy": {"enforcement": "Observe"}}, metadata={"generation": 4})))
    assert "Enforcement is Observe: decisions are reported and nothing is moved." in told
    assert "The last change of its spec has not been looked at yet." in told


def test_counts_that_are_not_by_route_are_said_with_the_reason() -> None:
    body = changed(status={"attribution": "Deployment"})
    counted = body["status"]["conditions"][1]
    counted |= {"status": "True", "reason": "EngineCountersRead", "message": "vLLM 0.28.1 has no figures."}
    assert "vLLM 0.28.1 has no figures." in list(text(body))
    body["status"]["attribution"] = "Router"
    assert "vLLM 0.28.1 has no figures." not in list(text(body))


def observing() -> dict[str, Any]:
    body = changed(spec={"policy": {"enforcement": "Observe"}})
    body["status"]["routes"][1]["report"] = {
        "since": "2026-11-28T09:12:00Z",
        "policy": "breakEven 1.6",
        "wouldBe": "baseline",
        "wouldHaveSwitchedAt": "2026-11-29T09:12:00Z",
        "switches": 1,
        "offPercent": 0,
        "message": "as it was when status was written",
    }
    return body


NOON = 1_795_953_120.0  # 2026-11-29 11:52 UTC


def test_under_observe_it_says_what_would_have_happened_up_to_now_and_the_field_that_lets_it() -> None:
    told = list(text(observing(), now=NOON))
    assert (
        "  Observe (breakEven 1.6): Would have gone off at 09:12; "
        "10 % of this route's time since 2026-11-28 09:12 off." in told
    )
    assert told[told.index("One field lets it act, spec.policy.enforcement:") + 1] == (
        "  kubectl patch specdeployment demo -n serving --type merge "
        """-p '{"spec":{"policy":{"enforcement":"Enforce"}}}'"""
    )
    assert json.loads(json_text(observing(), "code", now=NOON))["routes"][0]["report"]["offPercent"] == 10


def test_with_one_service_alone_it_asks_for_the_second_first() -> None:
    body = observing()
    body["spec"]["pools"] = {"external": {"speculative": {"service": "a", "port": 8000}}}
    assert any("name a second Service" in line for line in text(body, now=NOON))


def test_json_has_the_figures_and_not_the_opaque_state() -> None:
    shown = json.loads(json_text(BODY, "chat"))
    assert (shown["name"], shown["namespace"]) == ("demo", "serving")
    assert [route["name"] for route in shown["routes"]] == ["chat"]
    assert shown["routes"][0]["acceptancePercent"] == 11
    assert "state" not in shown["routes"][0]


def test_a_route_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ExplainError, match="no route nope: its routes are chat, code"):
        list(text(BODY, "nope"))


def test_an_object_without_status_asks_for_the_operator() -> None:
    with pytest.raises(ExplainError, match="has no status yet: is the operator running"):
        list(text({**BODY, "status": {"observedGeneration": -1}}))


def test_a_status_of_another_version_is_said_to_be_one() -> None:
    with pytest.raises(ExplainError, match="use the specfleet of the operator's version"):
        list(text(changed(status={"routes": [{"unknown": 1}]})))


def test_an_upgrade_under_way_is_told_beside_the_pools() -> None:
    upgrade = {
        "state": "Rolling",
        "pool": "ngram",
        "next": "baseline",
        "changes": "release 0.32.0 -> 0.33.0",
        "message": "Pool ngram takes the new template. Pool baseline carries on its old template and is next.",
    }
    lines = list(text({**BODY, "status": {**BODY["status"], "upgrade": upgrade}}))
    assert f"Upgrade, release 0.32.0 -> 0.33.0. {upgrade['message']}" in lines


def test_the_plan_and_what_pods_say_against_it() -> None:
    plan = {
        "kvBytesPerToken": 163_840,
        "sequenceTokens": 2000,
        "sequences": {"baseline": 220, "ngram": 167},
        "draftCostPercent": 24,
        "breakEvenTokensPerStep": "1.82",
        "message": "Pods of ngram report 280000 tokens of KV cache, and 336000 were planned (+20 %).",
    }
    lines = list(text({**BODY, "status": {**BODY["status"], "plan": plan}}))

    at = lines.index(
        "KV plan: a pod has room for 220 sequences in baseline and 167 sequences in ngram, of 2000 tokens each; "
        "the draft costs 24 %."
    )
    assert lines[at + 1].strip() == "By weights alone speculation needs 1.82 tokens per decode step."
    assert lines[at + 2].strip().startswith("Pods of ngram report 280000 tokens")
    del plan["breakEvenTokensPerStep"]
    assert "By weights alone" not in "\n".join(text({**BODY, "status": {**BODY["status"], "plan": plan}}))
    bare = {**BODY, "status": {**BODY["status"], "plan": {"secondPoolAccelerators": 2}}}
    assert not [line for line in text(bare) if line.startswith("KV plan")]
