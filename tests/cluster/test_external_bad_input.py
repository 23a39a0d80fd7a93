"""What a person reads when External pools are not what they should be; traffic stays where it is meanwhile."""

from __future__ import annotations

import pytest

from tests.cluster.api import Body, Refused, eventually
from tests.cluster.conftest import World
from tests.cluster.engines import BARE_ARGS, PLAIN_ARGS, SPECULATIVE_ARGS, Team, own_address
from tests.cluster.test_external import team
from tests.cluster.test_operator_switch import config_map_percent

pytestmark = pytest.mark.cluster
__all__ = ["team"]


def said(world: World, kind: str, reason: str, *words: str) -> Body:
    """Wait until a condition has this reason and all of these words."""

    def look() -> Body | None:
        one = world.condition(kind)
        return one if one["reason"] == reason and all(word in one["message"] for word in words) else None

    return eventually(f"{kind} says {reason} {words}", look)


def warned(world: World, *words: str) -> None:
    """Wait until condition Valid, True, warns in these words."""
    one = said(world, "Valid", "SpecValid", *words)
    assert one["status"] == "True"


def held(world: World) -> None:
    """Nothing is decided, and the weights are those that were there before."""
    chat = eventually(
        "the route is held", lambda: one if (one := world.route("chat"))["reason"] == "PoolsUnfit" else None
    )
    assert (chat["phase"], chat["pool"]) == ("Held", "speculative")
    assert config_map_percent(world, "chat", "speculative") == 100


def test_a_service_that_is_missing_is_named_and_the_other_pool_serves_until_it_is_there(
    world: World, team: Team
) -> None:
    team.deployment("fast", team.speculative, SPECULATIVE_ARGS)
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("plain", team.baseline.port)
    team.adopt()
    world.start()
    ready = said(world, "Ready", "ServiceNotFound", "there is no Service fast", "Pool baseline serves all routes.")
    assert ready["status"] == "False"
    assert world.condition("Stalled")["status"] == "False"
    eventually("all goes to baseline", lambda: config_map_percent(world, "chat", "speculative") == 0)
    team.service("fast", team.speculative.port)
    world.until("Ready", "True")
    world.served("chat", 100)


def test_a_service_without_endpoints_and_one_without_that_port_are_told_apart(world: World, team: Team) -> None:
    team.deployment("fast", team.speculative, SPECULATIVE_ARGS)
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    team.adopt()
    world.start()
    said(world, "Ready", "ServiceWithoutEndpoints", "Service plain has no endpoints", "Pool speculative serves")
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    world.until("Ready", "True")
    world.edit({"pools": {"external": {"speculative": {"port": 80}}}})
    said(world, "Ready", "ServicePortNotFound", "Service fast has no TCP port 80 (its ports: 8000)")
    world.edit({"pools": {"external": {"speculative": {"port": 8000}}}})
    world.until("Ready", "True")


def test_a_service_that_is_a_router_or_an_alias_is_no_pool(world: World, team: Team) -> None:
    team.serves()
    team.service("alias", 8000, selector={"app": "none"}, headless=False, type="ExternalName", externalName="a.example")
    ours = {"managed-by": "specfleet", "component": "router", "instance": "other"}
    labels = {f"app.kubernetes.io/{name}": value for name, value in ours.items()}
    team.service("other", 8000, headless=False, labels=labels)
    team.adopt()
    world.start()
    world.settled()
    world.edit({"pools": {"external": {"baseline": {"service": "other", "port": 8000}}}})
    said(world, "Stalled", "ServiceNotUsable", "is the router of SpecDeployment other", "go round")
    world.edit({"pools": {"external": {"baseline": {"service": "alias", "port": 8000}}}})
    said(world, "Stalled", "ServiceNotUsable", "ExternalName")


def test_a_service_with_pods_of_both_kinds_is_named_with_the_pods_and_nothing_is_decided(
    world: World, team: Team
) -> None:
    team.serves()
    team.deployment("odd", team.speculative, PLAIN_ARGS, labels={"pool": "fast"})
    team.world.api.patch("Service", world.namespace, "fast", {"spec": {"selector": {"app": None, "pool": "fast"}}})
    team.deployment("good", team.speculative, SPECULATIVE_ARGS, labels={"pool": "fast"})
    team.speculative.pages["/metrics"] = (404, "text/plain", b"")  # both share a port here: the arguments tell
    team.adopt()
    world.start()
    stalled = said(world, "Stalled", "MixedPods", "(good-", "(odd-", "narrow its selector")
    assert stalled["status"] == "True"
    said(world, "Ready", "MixedPods", "Traffic stays where it is")
    held(world)
    world.api.delete("Deployment", world.namespace, "odd")
    world.until("Ready", "True")
    assert world.condition("Stalled")["status"] == "False"


def test_two_services_over_the_same_pods_are_no_two_pools(world: World, team: Team) -> None:
    team.serves()
    team.service("again", team.speculative.port, selector={"app": "fast"})
    team.adopt()
    world.start()
    world.settled()
    world.edit({"pools": {"external": {"baseline": {"service": "again", "port": 8000}}}})
    said(world, "Stalled", "PoolsOverlap", "Services again and fast both select fast-")
    held(world)


@pytest.mark.parametrize(
    ("speculative", "baseline", "reason", "words"),
    [
        ("plain", "fast", "PoolsSwapped", "exchange the two names"),
        ("other", "plain", "PodsDoNotSpeculate", "--speculative-config"),
        ("fast", "faster", "BaselineSpeculates", "were started with speculation"),
    ],
)
def test_pods_of_the_other_kind_are_found_out(
    world: World, team: Team, speculative: str, baseline: str, reason: str, words: str
) -> None:
    team.serves()
    team.deployment("other", team.baseline, PLAIN_ARGS)
    team.service("other", team.baseline.port)
    team.deployment("faster", team.speculative, SPECULATIVE_ARGS)
    team.service("faster", team.speculative.port)
    external = {name: {"service": service} for name, service in (("speculative", speculative), ("baseline", baseline))}
    team.adopt(pools={"strategy": "External", "external": external})
    world.start()
    stalled = said(world, "Stalled", reason, words)
    assert stalled["status"] == "True"
    held(world)


def test_pods_that_serve_different_names_are_found_out_before_a_request_is(world: World, team: Team) -> None:
    team.serves()
    team.deployment("other", team.baseline, ["owner/name", "--max-num-seqs", "8", "--served-model-name", "else"])
    team.service("other", team.baseline.port)
    external = {"speculative": {"service": "fast"}, "baseline": {"service": "other"}}
    team.adopt(pools={"strategy": "External", "external": external})
    world.start()
    said(world, "Stalled", "PoolsDiffer", "Service other serves else, Service fast serves chat")
    held(world)


Page = tuple[int, str, bytes]


@pytest.mark.parametrize(
    ("page", "reason", "words"),
    [
        ((401, "text/plain", b"secret-of-the-page"), "EngineMetricsLocked", "wants a key"),
        ((404, "text/plain", b"secret-of-the-page"), "EngineMetricsUnreadable", "has no metrics page"),
        ((200, "text/html", b"<html>secret-of-the-page"), "EngineMetricsUnreadable", "a web page and no metrics"),
        ((200, "text/plain", b"up 1\n"), "EngineMetricsUnreadable", "is not vLLM's page"),
        ((200, "text/plain", b"sglang:generation_tokens_total 5\n"), "EngineMetricsUnreadable", "engine.type: SGLang"),
        ((200, "text/plain", b"vllm:num_requests_running 5\n"), "EngineMetricsUnreadable", "--disable-log-stats"),
    ],
)
def test_engines_whose_counters_are_needed_and_cannot_be_read(
    world: World, team: Team, page: Page, reason: str, words: str
) -> None:
    team.deployment("fast", team.speculative, BARE_ARGS)
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    team.speculative.pages["/metrics"] = page
    team.adopt()
    world.start()
    missing = said(world, "MetricsAvailable", reason, words, "The last decision holds")
    assert missing["status"] == "False"
    assert "secret-of-the-page" not in str(world.body())
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"]) == ("speculative", "Held")
    team.speculative.pages.clear()
    said(world, "MetricsAvailable", "EngineCountersRead")


def test_nothing_is_read_from_an_address_that_is_no_pod_s(world: World, team: Team) -> None:
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("plain", team.baseline.port)
    service = {"metadata": {"name": "fast"}, "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 8000}]}}
    world.api.create("Service", world.namespace, service)
    elsewhere = {
        "metadata": {"name": "fast-1", "labels": {"kubernetes.io/service-name": "fast"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": team.speculative.port}],
        "endpoints": [{"addresses": [own_address()]}],
    }
    path = f"/apis/discovery.k8s.io/v1/namespaces/{world.namespace}/endpointslices"
    world.api.request("POST", path, elsewhere)
    team.adopt()
    world.start()
    said(world, "MetricsAvailable", "EngineMetricsUnreadable", "no pod is behind this address")
    world.until("Ready", "True")
    pod = world.api.list("Pod", world.namespace)[0]["metadata"]
    target = {"kind": "Pod", "name": pod["name"], "uid": pod["uid"], "namespace": world.namespace}
    claimed = {"endpoints": [{"addresses": ["198.51.100.7"], "targetRef": target}]}
    world.api.request("PATCH", f"{path}/fast-1", claimed, "application/merge-patch+json")
    said(world, "MetricsAvailable", "EngineMetricsUnreadable", "198.51.100.7 is not the pod's own")
    assert team.speculative.asked == []


def test_counters_that_are_not_needed_cost_a_remark_and_no_decision(world: World, team: Team) -> None:
    team.serves()
    team.speculative.pages["/metrics"] = (401, "text/plain", b"")
    team.adopt()
    world.start()
    world.settled()
    remark = said(world, "MetricsAvailable", "RoutersRead", "wants a key", "Decisions do not rest on it.")
    assert remark["status"] == "True"


def test_metrics_on_another_port_are_found_by_the_pods_annotation(world: World, team: Team) -> None:
    beside = team.baseline.port  # the speculative pods' metrics are on a port of their own
    team.baseline.counters |= {"spec_decode_num_draft_tokens_total": 0, "spec_decode_num_drafts_total": 0}
    team.speculative.pages["/metrics"] = (404, "text/plain", b"")
    team.deployment("fast", team.speculative, BARE_ARGS, annotations={"prometheus.io/port": str(beside)})
    team.service("fast", team.speculative.port)
    external = {"speculative": {"service": "fast"}}
    team.adopt(pools={"strategy": "External", "external": external})
    world.start()
    said(world, "MetricsAvailable", "EngineCountersRead")


def test_a_flag_that_is_missing_is_named_with_the_line_to_add(world: World, team: Team) -> None:
    team.deployment("fast", team.speculative, BARE_ARGS)
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    team.adopt()
    world.start()
    said(
        world,
        "MetricsAvailable",
        "EngineCountersRead",
        "add --per-request-spec-decode-metrics summary to the arguments of the pods of Service fast",
    )
    assert world.status()["attribution"] == "Deployment"


def test_arguments_in_a_shell_script_are_asked_for_instead(world: World, team: Team) -> None:
    script = "export A=1; if true; then exec vllm serve owner/name; fi"
    team.deployment("fast", team.speculative, ["-c", script], command=("sh",), image="private/engine:latest")
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    team.adopt(policy={"minAcceptancePercent": 30, "initial": "Baseline", "block": "2s"})
    world.start()
    warned(world, "the arguments of pod fast-", "cannot be read", "shell")
    warned(world, "spec.pools.external.speculative.maxSequences")
    world.speculation("chat", "Always")
    said(world, "CapacitySufficient", "CapacityUnknown", "write maxSequences", "A switch of chat waits for it")
    assert world.route("chat")["pool"] == "baseline"
    world.edit({"pools": {"external": {"speculative": {"maxSequences": 8}}}})
    world.served("chat", 100)
    assert world.condition("CapacitySufficient")["status"] == "True"


def test_one_service_for_both_pools_and_one_s_own_name_are_refused_at_once(world: World, team: Team) -> None:
    one = {"service": "fast", "port": 8000}
    with pytest.raises(Refused, match="write a Service for each pool") as refused:
        team.adopt(pools={"strategy": "External", "external": {"speculative": one, "baseline": one}})
    assert refused.value.status == 422
    with pytest.raises(Refused, match="SpecDeployment another metadata") as refused:
        team.adopt(pools={"strategy": "External", "external": {"speculative": {"service": "assistant"}}})
    assert refused.value.status == 422


def sglang(**counters: int) -> Page:
    """A page of SGLang."""
    text = "".join(f'sglang:{name}{{model_name="chat"}} {value}\n' for name, value in counters.items())
    return 200, "text/plain", text.encode()


def test_sglang_is_counted_by_itself_from_the_release_that_counts_verifications(world: World, team: Team) -> None:
    start = ["--model-path", "owner/name", "--served-model-name", "chat", "--max-running-requests", "8"]
    drafts = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
    command = ("python3", "-m", "sglang.launch_server")
    image = "lmsysorg/sglang:v0.5.20"
    team.speculative.pages["/metrics"] = sglang(generation_tokens_total=0, num_running_reqs=0)
    team.baseline.pages["/metrics"] = sglang(generation_tokens_total=0, num_running_reqs=0)
    team.deployment(
        "fast", team.speculative, [*start, *drafts, "--speculative-num-draft-tokens", "4"], command=command, image=image
    )
    team.deployment("plain", team.baseline, start, command=command, image=image)
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    team.adopt(engine={"type": "SGLang"})
    world.start()
    said(world, "MetricsAvailable", "EngineCountersRead", "SGLang's answers carry no figures of their own")
    world.settled()
    generated = 0

    def counted() -> bool:
        nonlocal generated
        generated += 1530
        team.speculative.pages["/metrics"] = sglang(
            generation_tokens_total=generated,
            num_requests_total=generated // 51,
            spec_verify_calls_total=generated * 1000 // 1530,
            num_running_reqs=1,
        )
        return bool(world.route("chat").get("tokensPerStep") == "1.50")  # 1,500 tokens in 1,000 verifications

    eventually("tokens a step are those of the engine", counted)
    assert world.route("chat")["acceptancePercent"] == 17  # 500 of 3,000
    team.speculative.pages["/metrics"] = sglang(generation_tokens_total=generated, num_requests_total=generated // 51)
    said(world, "MetricsAvailable", "EngineCountsNothing", "from 0.5.13 on")


def test_a_service_with_a_cluster_ip_works_and_is_warned_of(world: World, team: Team) -> None:
    team.deployment("fast", team.speculative, SPECULATIVE_ARGS)
    team.deployment("plain", team.baseline, PLAIN_ARGS)
    team.service("fast", team.speculative.port, headless=False)
    team.service("plain", team.baseline.port)
    team.adopt()
    world.start()
    world.settled()
    warned(world, "Service fast has a cluster IP", "the node's proxy picks the pod")
