"""The key of prompt hashes: mounted by router pods alone, and nothing without the field."""

from __future__ import annotations

from typing import Any

from specfleet.render.objects import render_all
from specfleet.render.plan import router_plan
from specfleet.settings import OperatorSettings
from tests.unit.render.test_plan import deployment

FIELD = {"promptHash": {"keySecretRef": {"name": "prompt-key", "key": "hmac"}}}


def pods(**routing: Any) -> dict[str, Any]:
    """The pod template of each Deployment, by its component."""
    found = render_all(deployment(routing=routing), OperatorSettings())
    return {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["template"]["spec"]
        for one in found
        if one["kind"] == "Deployment"
    }


def test_only_routers_mount_the_key_and_a_missing_secret_keeps_none_down() -> None:
    with_key, without = pods(**FIELD), pods()
    volume = {
        "name": "prompt-key",
        "secret": {"secretName": "prompt-key", "items": [{"key": "hmac", "path": "key"}], "optional": True},
    }
    assert with_key["router"]["volumes"] == [*without["router"]["volumes"], volume]
    envoy, helper = with_key["router"]["containers"]
    mount = {"name": "prompt-key", "mountPath": "/etc/envoy/prompt-key", "readOnly": True}
    assert envoy["volumeMounts"] == [*without["router"]["containers"][0]["volumeMounts"], mount]
    assert helper == without["router"]["containers"][1]
    assert {name: pod for name, pod in with_key.items() if name != "router"} == {
        name: pod for name, pod in without.items() if name != "router"
    }


def test_routers_are_told_where_the_key_is() -> None:
    assert router_plan(deployment(routing=FIELD), {}).prompt_key == "/etc/envoy/prompt-key/key"
    assert router_plan(deployment(), {}).prompt_key is None
