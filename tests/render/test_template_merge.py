"""`pools.template` is merged as kubectl itself merges it, and says no more than it may."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfleet.api.findings import FindingReason
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.objects import render_all
from specfleet.render.template import merge_pod_template
from specfleet.render.validate import validate
from tests.render.cases import FIXTURES, SETTINGS, read_deployment
from tests.testbed.api import kubectl_binary

Document = dict[str, Any]

BASE: Document = next(
    item["spec"]["template"]
    for item in render_all(read_deployment(FIXTURES / "vllm/0.32/ngram-claim"), SETTINGS)
    if item["metadata"]["name"] == "coder-lookup" and item["kind"] == "Deployment"
)


def kubectl_merge(template: Document, patch: Document) -> Document:
    """What kubectl's strategic merge makes of a pod template."""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {"selector": {}, "template": template},
    }
    ended = subprocess.run(
        [
            *(str(kubectl_binary()), "patch", "--local", "--type=strategic", "-f", "-", "-o", "json"),
            *("-p", json.dumps({"spec": {"template": patch}})),
        ],
        input=json.dumps(deployment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    merged: Document = json.loads(ended.stdout)["spec"]["template"]
    return merged


def without_empty_creation(template: Document) -> Document:
    """kubectl's typed round trip may add `creationTimestamp: null`."""
    metadata = {key: value for key, value in template.get("metadata", {}).items() if key != "creationTimestamp"}
    return {**template, "metadata": metadata}


CASES: dict[str, Document] = {
    "a label": {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}},
    "a new variable": {"spec": {"containers": [{"name": "engine", "env": [{"name": "NEW", "value": "1"}]}]}},
    "a known variable": {"spec": {"containers": [{"name": "engine", "env": [{"name": "POD_IP", "value": "1"}]}]}},
    "variables in another order": {
        "spec": {
            "containers": [
                {
                    "name": "engine",
                    "env": [
                        {"name": "POD_IP", "value": "1"},
                        {"name": "A", "value": "2"},
                        {"name": "HF_HOME", "value": "3"},
                        {"name": "B", "value": "4"},
                    ],
                }
            ]
        }
    },
    "a side car before and after": {
        "spec": {
            "containers": [
                {"name": "one", "image": "i"},
                {"name": "engine", "tty": True},
                {"name": "two", "image": "i"},
            ]
        }
    },
    "an init container": {"spec": {"initContainers": [{"name": "first", "image": "i", "args": ["a"]}]}},
    "volumes": {
        "spec": {"volumes": [{"name": "extra", "emptyDir": {}}, {"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]}
    },
    "mounts": {
        "spec": {
            "containers": [{"name": "engine", "volumeMounts": [{"name": "extra", "mountPath": "/x", "readOnly": True}]}]
        }
    },
    "tolerations replace": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    "affinity": {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
                    }
                }
            }
        }
    },
    "a null removes": {"spec": {"securityContext": {"seccompProfile": None}, "topologySpreadConstraints": None}},
    "pull secrets and aliases": {
        "spec": {"imagePullSecrets": [{"name": "pull"}], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}
    },
    "spread by another key": {
        "spec": {
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
                {"topologyKey": "kubernetes.io/hostname", "maxSkew": 2},
            ]
        }
    },
    "probe and resources": {
        "spec": {
            "containers": [
                {"name": "engine", "startupProbe": {"failureThreshold": 9}, "resources": {"limits": {"memory": "1Gi"}}}
            ]
        }
    },
}


@pytest.mark.parametrize("case", CASES)
def test_it_merges_as_kubectl_does(case: str) -> None:
    ours = merge_pod_template(BASE, CASES[case])

    assert ours == without_empty_creation(kubectl_merge(BASE, CASES[case]))


names = st.sampled_from(["engine", "HF_HOME", "POD_IP", "VLLM_API_KEY", "shm", "new", "other", "third"])
env = st.lists(
    st.fixed_dictionaries({"name": names, "value": st.text("ab", max_size=2)}),
    max_size=4,
    unique_by=lambda e: str(e["name"]),
)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": names},
        optional={"env": env, "tty": st.booleans(), "args": st.lists(st.text("ab", max_size=2), max_size=2)},
    ),
    max_size=3,
    unique_by=lambda c: str(c["name"]),
)
labels = st.dictionaries(
    st.sampled_from(["a", "b", "team"]), st.one_of(st.none(), st.text("xy", max_size=2)), max_size=3
)
patches = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({"labels": labels}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": containers,
                "volumes": st.lists(
                    st.fixed_dictionaries({"name": names, "emptyDir": st.just({})}),
                    max_size=3,
                    unique_by=lambda v: str(v["name"]),
                ),
                "nodeSelector": labels,
                "tolerations": st.lists(st.fixed_dictionaries({"key": names}), max_size=2),
            },
        ),
    },
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(patch=patches)
def test_any_template_merges_as_kubectl_does(patch: Document) -> None:
    theirs = without_empty_creation(kubectl_merge(BASE, patch))

    assert _full(merge_pod_template(BASE, patch)) == _full(theirs)


def _full(template: Any) -> Any:
    """Empty texts and lists are left out by kubectl's typed round trip."""
    if isinstance(template, dict):
        return {key: _full(value) for key, value in template.items() if value not in (None, [], {}, "", False)}
    if isinstance(template, list):
        return [_full(item) for item in template]
    return template


REFUSED: dict[str, tuple[Document, FindingReason]] = {
    "another command": (
        {"spec": {"containers": [{"name": "engine", "command": ["sh"]}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "more arguments": (
        {"spec": {"containers": [{"name": "engine", "args": ["--x"]}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "another image": (
        {"spec": {"containers": [{"name": "engine", "image": "x"}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "no pre-stop": (
        {"spec": {"containers": [{"name": "engine", "lifecycle": None}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "our label": ({"metadata": {"labels": {"specfleet.dev/pool": "x"}}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "a selector label": (
        {"metadata": {"labels": {"app.kubernetes.io/instance": "x"}}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "a name": ({"metadata": {"name": "x"}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "our volume": ({"spec": {"volumes": [{"name": "model", "emptyDir": {}}]}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "our mount": (
        {"spec": {"containers": [{"name": "engine", "volumeMounts": [{"name": "x", "mountPath": "/models/coder/"}]}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "our variable": (
        {"spec": {"containers": [{"name": "engine", "env": [{"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": "5"}]}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "more accelerators": (
        {"spec": {"containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "no spec": ({"spec": None}, FindingReason.OWNED_TEMPLATE_FIELD),
    "no labels": ({"metadata": {"labels": None}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "no volumes": ({"spec": {"volumes": None}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "no variables": ({"spec": {"containers": [{"name": "engine", "env": None}]}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "no accelerator": (
        {"spec": {"containers": [{"name": "engine", "resources": {"limits": None}}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "no dropped capabilities": (
        {"spec": {"containers": [{"name": "engine", "securityContext": {"capabilities": None}}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "no start-up probe": (
        {"spec": {"containers": [{"name": "engine", "startupProbe": None}]}},
        FindingReason.OWNED_TEMPLATE_FIELD,
    ),
    "a short grace": ({"spec": {"terminationGracePeriodSeconds": 30}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "a token": ({"spec": {"automountServiceAccountToken": True}}, FindingReason.OWNED_TEMPLATE_FIELD),
    "host network": ({"spec": {"hostNetwork": True}}, FindingReason.PRIVILEGED_TEMPLATE),
    "host processes": ({"spec": {"hostPID": True}}, FindingReason.PRIVILEGED_TEMPLATE),
    "privileged": (
        {"spec": {"containers": [{"name": "engine", "securityContext": {"privileged": True}}]}},
        FindingReason.PRIVILEGED_TEMPLATE,
    ),
    "a privileged side car": (
        {"spec": {"initContainers": [{"name": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}},
        FindingReason.PRIVILEGED_TEMPLATE,
    ),
    "a host port": (
        {"spec": {"containers": [{"name": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}]}},
        FindingReason.PRIVILEGED_TEMPLATE,
    ),
    "a foreign account": ({"spec": {"serviceAccountName": "admin"}}, FindingReason.PRIVILEGED_TEMPLATE),
    "a projected token": (
        {"spec": {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}},
        FindingReason.PRIVILEGED_TEMPLATE,
    ),
    "unconfined": (
        {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
        FindingReason.PRIVILEGED_TEMPLATE,
    ),
    "a directive": ({"spec": {"$patch": "replace"}}, FindingReason.INVALID_TEMPLATE),
    "containers as a map": ({"spec": {"containers": {"name": "engine"}}}, FindingReason.INVALID_TEMPLATE),
    "a container without a name": ({"spec": {"containers": [{"tty": True}]}}, FindingReason.INVALID_TEMPLATE),
    "a spec as text": ({"spec": "x"}, FindingReason.INVALID_TEMPLATE),
    "an unknown part": ({"status": {}}, FindingReason.INVALID_TEMPLATE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_specfleet_owns_or_does_not_hand_on_is_refused(case: str) -> None:
    template, reason = REFUSED[case]
    document = yaml.safe_load((FIXTURES / "vllm/0.32/ngram-claim/cr.yaml").read_text())
    document["spec"]["pools"]["template"] = template

    found = validate(SpecDeployment.parse(document), SETTINGS)

    assert [finding.reason for finding in found] == [reason]
    assert found[0].path.startswith("spec.pools.template")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_directory_of_the_node_needs_the_operators_setting(allowed: bool) -> None:
    operator = SETTINGS.model_copy(update={"allow_host_path": allowed})

    found = validate(read_deployment(FIXTURES / "vllm/0.32/ngram-host-path"), operator)

    places = [finding.path for finding in found if finding.reason is FindingReason.HOST_PATH_NOT_ALLOWED]
    assert places == (
        [] if allowed else ["spec.target.source.hostPath", "spec.pools.template.spec.volumes[0].hostPath"]
    )
