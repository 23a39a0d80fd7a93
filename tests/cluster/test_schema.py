"""The generated schema on a real API server: what it refuses and in which words, what it fills in, what kubectl shows.

Every refusal is checked against the offline check too: both must say the same.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.api.offline import parse
from specfleet.api.schema import object_schema
from tests.cluster.api import eventually
from tests.testbed.api import ensure_control_plane, kubectl_binary

pytestmark = pytest.mark.cluster

REPOSITORY = Path(__file__).resolve().parents[2]
Document = dict[str, Any]

VALID: Document = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant", "namespace": "default"},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "meta-llama/Llama-3.1-8B-Instruct"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 4},
        "policy": {"minAcceptancePercent": 30},
    },
}


@dataclass(frozen=True)
class Cluster:
    """An API server with the CRD."""

    kubeconfig: Path

    def kubectl(self, *arguments: str, document: Document | None = None) -> subprocess.CompletedProcess[str]:
        """One kubectl command, whatever its outcome."""
        return subprocess.run(
            [str(kubectl_binary()), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=yaml.safe_dump(document) if document is not None else "",
            capture_output=True,
            text=True,
            check=False,
        )

    def must(self, *arguments: str, document: Document | None = None) -> str:
        """The output of a command that has to succeed."""
        ended = self.kubectl(*arguments, document=document)
        assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
        return ended.stdout

    def try_out(self, document: Document) -> subprocess.CompletedProcess[str]:
        """What the API server says to the document, strictly, without keeping it."""
        return self.kubectl(
            "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-", document=document
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    plane = ensure_control_plane(tmp_path_factory.mktemp("schema"))
    found = Cluster(plane.kubeconfig)
    found.must("apply", "-f", str(REPOSITORY / "crds"))
    # Not by `kubectl wait`, which fails on a definition that has no condition yet.
    eventually("the definition is served", lambda: found.kubectl("get", "specdeployments").returncode == 0)
    yield found
    plane.stop()


def changed(path: str, value: Any) -> Document:
    """The valid document with one field set; the path has dots, and numbers for list items."""
    document = copy.deepcopy(VALID)
    *parents, last = path.split(".")
    node: Any = document
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    node[last] = value
    return document


def without(path: str) -> Document:
    """The valid document with one field removed."""
    document = copy.deepcopy(VALID)
    *parents, last = path.split(".")
    node: Any = document
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node[part]
    del node[last]
    return document


HEADER = {"header": {"name": "x-route", "value": "code"}}
VOLUME = {"hostPath": {"path": "/srv/models"}}
IMAGE = {"image": {"reference": "registry.example.com/models/llama:1"}}


def hub(secret: str) -> Document:
    """The Hub with a token."""
    return {"huggingFace": {"tokenSecretRef": {"name": secret, "key": "token"}}}


def drafted(mode: str, *, on_volume: bool = False, target: Document | None = None, **fields: Any) -> Document:
    """The valid document with another draft; the target on a volume at /models/target, or another one, if wanted."""
    document = copy.deepcopy(VALID)
    document["spec"]["drafts"] = [{"name": "drafts", "mode": mode, **fields}]
    if on_volume:
        document["spec"]["target"] = {"model": "/models/target", "source": VOLUME}
    if target is not None:
        document["spec"]["target"] = target
    return document


EXTERNAL: Document = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant", "namespace": "default"},
    "spec": {
        "engine": {"type": "vLLM"},
        "pools": {
            "strategy": "External",
            "external": {"speculative": {"service": "llama-eagle"}, "baseline": {"service": "llama"}},
        },
        "policy": {"minAcceptancePercent": 30},
    },
}


def external(**paths: Any) -> Document:
    """The valid document of External pools with fields set by path; `__` stands for a dot, numbers for list items."""
    document = copy.deepcopy(EXTERNAL)
    for path, value in paths.items():
        *parents, last = path.split("__")
        node: Any = document["spec"]
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        node[last] = value
    return document


DRAFT = {"name": "eagle", "mode": "EAGLE3", "tokens": 3}
TARGET = {"model": "meta-llama/Llama-3.1-8B-Instruct"}
ALIASES = [{"name": "code", "match": [{"model": "code"}]}, {"name": "rest"}]

BROKEN_RULES: dict[str, tuple[Document, str]] = {
    "name too long": (changed("metadata.name", "a" * 46), "at most 45 characters"),
    "name with a dot": (changed("metadata.name", "a.b"), "metadata.name must be a DNS label"),
    "name with a digit first": (changed("metadata.name", "1st"), "metadata.name must be a DNS label"),
    "no version and no image": (changed("spec.engine", {"type": "vLLM"}), "write engine.version"),
    "value and valueFrom": (
        changed(
            "spec.engine.env", [{"name": "A", "value": "b", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
        ),
        "write value or valueFrom",
    ),
    "valueFrom nothing": (changed("spec.engine.env", [{"name": "A", "valueFrom": {}}]), "write exactly one of secret"),
    "model is a URL": (changed("spec.target.model", "https://huggingface.co/a/b"), "no URL"),
    "model goes up": (changed("spec.target.model", "a/b..c"), "no '..'"),
    "model without owner": (changed("spec.target.model", "llama"), "write the model as owner/name"),
    "path without a volume": (changed("spec.target.model", "/models/x"), "an absolute path needs a volume source"),
    "path from the Hub": (
        changed("spec.target", {"model": "/models/x", "source": {"huggingFace": {}}}),
        "an absolute path needs a volume source",
    ),
    "volume without a path": (changed("spec.target.source", VOLUME), "a volume source is mounted at the path"),
    "two sources": (
        changed("spec.target", {"model": "/m/x", "source": {**VOLUME, "persistentVolumeClaim": {"claimName": "c"}}}),
        "write exactly one of huggingFace",
    ),
    "no source": (changed("spec.target.source", {}), "write exactly one of huggingFace"),
    "an image and a claim": (
        changed("spec.target", {"model": "/m/x", "source": {**IMAGE, "persistentVolumeClaim": {"claimName": "c"}}}),
        "write exactly one of huggingFace",
    ),
    "an image volume without a path": (changed("spec.target.source", IMAGE), "a volume source is mounted at the path"),
    "memory of an accelerator that there is not": (
        changed("spec.pools.accelerator", {"resource": "", "memory": "80Gi"}),
        "engines on CPUs have no accelerator to plan for",
    ),
    "claim path is absolute": (
        changed(
            "spec.target",
            {"model": "/m/x", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "/sub"}}},
        ),
        "path is relative to the volume's root",
    ),
    "host path goes up": (
        changed("spec.target", {"model": "/m/x", "source": {"hostPath": {"path": "/srv/../etc"}}}),
        "path holds no '..'",
    ),
    "reserved draft name": (changed("spec.drafts.0.name", "router"), "this name is taken by specfleet"),
    "draft model with NGram": (changed("spec.drafts.0.model", "owner/draft"), "take no draft model: remove model"),
    "revision without a draft model": (drafted("MTP", revision="main"), "revision and source belong to a draft model"),
    "source without a draft model": (drafted("MTP", source={"huggingFace": {}}), "revision and source belong to"),
    "matches of another mode": (drafted("MTP", ngram={"minMatch": 3, "maxMatch": 4}), "only mode NGram looks up"),
    "EAGLE-3 without a head": (drafted("EAGLE3"), "need a draft checkpoint: write drafts[0].model"),
    "a draft model that is a URL": (drafted("EAGLE", model="https://a/b"), "write the model as owner/name"),
    "a draft at a path without a volume": (drafted("EAGLE", model="/models/x"), "at an absolute path needs a volume"),
    "a draft beside the target's volume": (
        drafted("EAGLE", on_volume=True, model="/models/other"),
        "or a path inside the target's volume",
    ),
    "a draft at a path with a revision": (
        drafted("EAGLE", model="/models/x", revision="main", source=VOLUME),
        "an absolute path is no model of the Hub",
    ),
    "a draft of the Hub with a volume": (
        drafted("EAGLE", model="owner/draft", source=VOLUME),
        "write model as an absolute path, for instance /models/draft",
    ),
    "a draft of the Hub beside a volume": (
        drafted("EAGLE", on_volume=True, model="owner/draft"),
        "write drafts[0].source: {huggingFace: {}}",
    ),
    "a draft mounted in the target": (
        drafted("EAGLE", on_volume=True, model="/models/target/x", source=VOLUME),
        "mounted one in the other",
    ),
    "two tokens for the Hub": (
        drafted("EAGLE", model="owner/draft", source=hub("b"), target={"model": "owner/model", "source": hub("a")}),
        "an engine takes one token",
    ),
    "matches out of order": (changed("spec.drafts.0.ngram", {"minMatch": 5, "maxMatch": 3}), "minMatch must not be"),
    "minBaseline takes all": (changed("spec.pools.minBaseline", 4), "leave at least one replica for speculation"),
    "route name twice": (
        changed("spec.routing.routes", [{"name": "a", "match": [HEADER]}, {"name": "a"}]),
        "two routes have one name",
    ),
    "reserved route name": (changed("spec.routing.routes", [{"name": "other"}]), "the router counts under this name"),
    "last route with a match": (
        changed("spec.routing.routes", [{"name": "a", "match": [HEADER]}]),
        "the last route takes what no other does",
    ),
    "two routes without match": (
        changed("spec.routing.routes", [{"name": "a"}, {"name": "b"}]),
        "only the last route may be without match",
    ),
    "empty match": (
        changed("spec.routing.routes", [{"name": "a", "match": [{}]}, {"name": "b"}]),
        "a match needs at least one of",
    ),
    "header that is stripped": (
        changed(
            "spec.routing.routes",
            [{"name": "a", "match": [{"header": {"name": "X-Envoy-Retry-On", "value": "x"}}]}, {"name": "b"}],
        ),
        "are removed from requests before routes are matched",
    ),
    "affinity by a header that is stripped": (
        changed("spec.routing.affinity", {"header": "x-specfleet-key"}),
        "are removed from requests before routes are matched",
    ),
    "Enforce without a line": (changed("spec.policy", {}), "needs a line to decide by"),
    "Enforce with source None": (
        changed("spec.policy", {"breakEven": {"source": "None"}}),
        "needs a line to decide by",
    ),
    "Fixed without a figure": (
        changed("spec.policy.breakEven", {"source": "Fixed"}),
        "write tokensPerStep, for instance",
    ),
    "a figure without Fixed": (
        changed("spec.policy.breakEven", {"source": "None", "tokensPerStep": "1.6"}),
        "write tokensPerStep, for instance",
    ),
    "a break-even below one": (
        changed("spec.policy.breakEven", {"source": "Fixed", "tokensPerStep": "0.9"}),
        "tokensPerStep must be between 1 and 33",
    ),
    "calibration of a line that is fixed": (
        changed(
            "spec.policy.breakEven",
            {"source": "Fixed", "tokensPerStep": "1.6", "calibration": {"window": {"start": "01:00"}}},
        ),
        "calibration is for source Measured",
    ),
    "calibration for a minute": (
        changed(
            "spec.policy.breakEven",
            {"source": "Measured", "calibration": {"window": {"start": "01:00", "duration": "1m"}}},
        ),
        "a window's duration must be 10m to 24h",
    ),
    "a block of hours": (changed("spec.policy.block", "2h"), "block must be 1s to 1h"),
    "an SLO without a time": (changed("spec.policy.slo", {"percentile": 95}), "write timePerOutputToken"),
    "a route's SLO without a time": (
        changed("spec.routing.routes", [{"name": "chat", "policy": {"slo": {}}}]),
        "write timePerOutputToken",
    ),
    "an SLO of no time": (changed("spec.policy.slo", {"timePerOutputToken": "0ms"}), "must be 1ms to 10m"),
    "an SLO of an hour": (changed("spec.policy.slo", {"timeToFirstToken": "1h"}), "must be 1ms to 10m"),
    "a dwell of no time": (changed("spec.policy.dwell", "0s"), "dwell must be 1s to 24h"),
    "rendered without a target": (without("spec.target"), "strategy Split needs the model to serve"),
    "rendered with a target of null": (changed("spec.target", None), "strategy Split needs the model to serve"),
    "rendered without a draft": (changed("spec.drafts", []), "strategy Split needs one way to draft"),
    "rendered without a size": (changed("spec.pools", {}), "strategy Split needs the size of the fleet"),
    "Services with rendered pools": (
        changed("spec.pools.external", {"baseline": {"service": "llama"}}),
        "with strategy External, and only there",
    ),
    "External without Services": (external(pools={"strategy": "External"}), "with strategy External, and only there"),
    "External with no side": (external(pools__external={}), "write the Service of at least one pool"),
    "one Service for both pools": (
        external(pools__external__baseline={"service": "llama-eagle", "port": 9000}),
        "both pools name the same Service",
    ),
    "the router's own Service": (
        external(pools__external__baseline={"service": "assistant"}),
        "it would send requests to itself",
    ),
    "Enforce with one side": (
        external(pools__external={"speculative": {"service": "llama-eagle"}}),
        "with one External pool there is nowhere to move traffic to",
    ),
    "an alias without a served name": (external(routing={"routes": ALIASES}, target=TARGET), "need the name that"),
    "External with replicas": (external(pools__replicas=2), "does not scale External pools: remove replicas"),
    "External with minBaseline": (external(pools__minBaseline=1), "does not scale External pools: remove minBaseline"),
    "External with an accelerator": (
        external(pools__accelerator={"resource": "amd.com/gpu"}),
        "does not start the pods of External pools: remove accelerator",
    ),
    "External with storage": (
        external(pools__storage={"cache": {"persistentVolumeClaim": "c"}}),
        "does not start the pods of External pools: remove storage",
    ),
    "External with a template": (
        external(pools__template={"spec": {}}),
        "does not start the pods of External pools: remove template",
    ),
    "External with sequenceTokens": (
        external(pools__sequenceTokens=2048),
        "does not start the pods of External pools: remove sequenceTokens",
    ),
    "External with an image": (external(engine__image="vllm/vllm-openai:v0.32.0"), "remove engine.image"),
    "External with flags": (external(engine__args={"max-model-len": "8192"}), "remove engine.args"),
    "External with verbatim flags": (external(engine__extraArgs=["--seed=1"]), "remove engine.extraArgs"),
    "External with variables": (external(engine__env=[{"name": "A", "value": "1"}]), "remove engine.env"),
    "External with a source": (external(target={**TARGET, "source": {"huggingFace": {}}}), "remove target.source"),
    "External with parallelism": (
        external(target={**TARGET, "parallelism": {"tensor": 2}}),
        "remove target.parallelism",
    ),
    "External with draft keys": (external(drafts=[{**DRAFT, "args": {"a": "1"}}]), "remove drafts[0].args"),
    "External with a draft model": (
        external(drafts=[{"name": "eagle", "mode": "EAGLE", "model": "owner/draft"}]),
        "remove drafts[0].model",
    ),
    "External with lossy drafts": (external(drafts=[{**DRAFT, "allowLossy": True}]), "remove drafts[0].allowLossy"),
    "External with look-up lengths": (
        external(drafts=[{**DRAFT, "ngram": {"minMatch": 3, "maxMatch": 4}}]),
        "remove drafts[0].ngram",
    ),
    "External TensorRT-LLM": (external(engine__type="TensorRTLLM"), "what External pools do of vLLM and SGLang only"),
    "a file for an engine that takes none": (changed("spec.engine.config", "a: 1"), "write flags in engine.args"),
    "a Prometheus with source Direct": (
        changed("spec.metrics", {"prometheus": {"url": "http://prometheus:9090"}}),
        "source Direct asks the routers",
    ),
}


@pytest.mark.parametrize("case", BROKEN_RULES)
def test_a_broken_rule_is_refused_with_what_to_write_here_and_offline(cluster: Cluster, case: str) -> None:
    document, words = BROKEN_RULES[case]

    refused = cluster.try_out(document)

    assert refused.returncode != 0
    assert words in refused.stderr
    _, findings = parse(document)
    assert any(words in finding.message for finding in findings), findings


def _rules(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        rules = node.get("x-kubernetes-validations", ())
        yield from (rule["message"] for rule in rules if "oldSelf" not in rule["rule"])  # these are about a change
        for value in node.values():
            yield from _rules(value)


def test_every_rule_of_the_schema_has_a_case_here() -> None:
    messages = set(_rules(object_schema()))

    untested = {message for message in messages if not any(words in message for _, words in BROKEN_RULES.values())}

    assert untested == set()


REFUSED_FIELDS: dict[str, Document] = {
    "an unknown field": changed("spec.polcy", {}),
    "an unknown field deep down": changed("spec.routing.routes", [{"name": "a", "speculate": True}]),
    "an unknown engine": changed("spec.engine.type", "llama.cpp"),
    "a mode that there is not": changed("spec.drafts.0.mode", "Oracle"),
    "a strategy that is not built": changed("spec.pools.strategy", "External"),
    "k of 0": changed("spec.drafts.0.tokens", 0),
    "k of 33": changed("spec.drafts.0.tokens", 33),
    "k as text": changed("spec.drafts.0.tokens", "4"),
    "a float": changed("spec.policy.minAcceptancePercent", 30.5),
    "101 percent": changed("spec.policy.minAcceptancePercent", 101),
    "a median too low": changed("spec.policy.slo", {"timeToFirstToken": "1s", "percentile": 49}),
    "the worst of all": changed("spec.policy.slo", {"timeToFirstToken": "1s", "percentile": 100}),
    "one replica": changed("spec.pools.replicas", 1),
    "two drafts": changed("spec.drafts", [{"name": "a", "mode": "NGram"}, {"name": "b", "mode": "NGram"}]),
    "a long route name": changed("spec.routing.routes", [{"name": "a" * 17}]),
    "a name with capitals": changed("spec.routing.routes", [{"name": "Chat"}]),
    "a duration in words": changed("spec.policy.block", "one minute"),
    "a number as text": changed("spec.engine.args", {"max-model-len": 8192}),
    "a variable twice": changed("spec.engine.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "a format twice": changed(
        "spec.routing.routes", [{"name": "a", "match": [{"responseFormat": ["text", "text"]}]}, {"name": "b"}]
    ),
    "calibration at an hour that is none": changed(
        "spec.policy.breakEven", {"source": "Measured", "calibration": {"window": {"start": "24:00"}}}
    ),
    "calibration with all of the traffic": changed(
        "spec.policy.breakEven", {"source": "Measured", "calibration": {"percent": 91, "window": {"start": "01:00"}}}
    ),
    "calibration at any time": changed("spec.policy.breakEven", {"source": "Measured", "calibration": {"percent": 10}}),
    "an external Service that is no name": external(pools__external__baseline={"service": "a.b"}),
    "an external port of 0": external(pools__external__baseline={"service": "a", "port": 0}),
    "a Prometheus with a password": changed(
        "spec.metrics", {"source": "Prometheus", "prometheus": {"url": "http://me:secret@prometheus:9090"}}
    ),
    "a Prometheus by file": changed("spec.metrics", {"source": "Prometheus", "prometheus": {"url": "file:///etc"}}),
    "no policy": without("spec.policy"),
    "no spec": without("spec"),
    "an unknown root field": changed("sepc", {}),
    "another version": changed("apiVersion", "specfleet.dev/v1beta1"),
}


@pytest.mark.parametrize("case", REFUSED_FIELDS)
def test_a_wrong_field_is_refused_here_and_offline(cluster: Cluster, case: str) -> None:
    refused = cluster.try_out(REFUSED_FIELDS[case])

    assert refused.returncode != 0, refused.stdout
    deployment, findings = parse(REFUSED_FIELDS[case])
    assert deployment is None
    assert findings


ACCEPTED: dict[str, Document] = {
    "the least": VALID,
    "a claim": changed(
        "spec.target", {"model": "/models/x", "source": {"persistentVolumeClaim": {"claimName": "c", "path": "a/b"}}}
    ),
    "no accelerator": changed("spec.pools.accelerator", {"resource": ""}),
    "Observe without a line": changed("spec.policy", {"enforcement": "Observe"}),
    "an SLO": changed("spec.policy.slo", {"timePerOutputToken": "40ms", "timeToFirstToken": "1s", "percentile": 99}),
    "a line per route": {
        **VALID,
        "spec": {
            **VALID["spec"],
            "policy": {},
            "routing": {
                "routes": [
                    {"name": "code", "match": [HEADER, {"model": "code"}], "policy": {"minAcceptancePercent": 40}},
                    {
                        "name": "json",
                        "match": [{"responseFormat": ["json_object"], "tools": False}],
                        "speculation": "Never",
                    },
                    {"name": "chat", "speculation": "Always"},
                ]
            },
        },
    },
    "MTP of the target": drafted("MTP"),
    "MTP with a checkpoint of its own": drafted("MTP", model="google/gemma-4-assistant", revision="main"),
    "suffix": drafted("Suffix", args={"suffix_decoding_max_tree_depth": "16"}),
    "a draft of the Hub": drafted("EAGLE3", model="owner/head", revision="v1", allowLossy=True),
    "a draft on a volume": drafted("DraftModel", model="/models/draft", source=VOLUME),
    "both on volumes": drafted("DraftModel", on_volume=True, model="/models/draft", source=VOLUME),
    "a draft in the target's volume": drafted("Medusa", on_volume=True, model="/models/target/heads"),
    "a draft of the Hub beside a volume": drafted("DFlash", on_volume=True, model="owner/draft", source=hub("a")),
    "one token for both": drafted(
        "EAGLE", model="owner/draft", source=hub("a"), target={"model": "owner/model", "source": hub("a")}
    ),
    "External, the least": EXTERNAL,
    "External with all that is asked for": external(
        engine={"type": "SGLang", "version": "0.5.20"},
        target={"model": "/models/llama", "servedName": "llama", "revision": "main"},
        drafts=[DRAFT],
        pools__external__speculative={"service": "llama-eagle", "port": 30000, "maxSequences": 48},
        routing={"routes": ALIASES},
    ),
    "External with one side": external(
        pools__external={"speculative": {"service": "llama-eagle"}}, policy={"enforcement": "Observe"}
    ),
    "Prometheus of the settings": changed("spec.metrics", {"source": "Prometheus"}),
    "Prometheus of its own": changed(
        "spec.metrics", {"source": "Prometheus", "prometheus": {"url": "https://prometheus.monitoring:9090/prom"}}
    ),
    "a template of any form": changed("spec.pools.template", {"spec": {"tolerations": [{"operator": "Exists"}]}}),
    "32 routes": changed(
        "spec.routing.routes",
        [
            *({"name": f"r{n}", "match": [{"header": {"name": "x", "value": str(n)}}] * 16} for n in range(31)),
            {"name": "rest"},
        ],
    ),
    "TensorRT-LLM with a file": changed(
        "spec.engine", {"type": "TensorRTLLM", "version": "1.4.0rc1", "config": "kv_cache_config: {dtype: fp8}\n"}
    ),
    "env from a field": changed(
        "spec.engine.env", [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_right_is_taken_here_and_offline(cluster: Cluster, case: str) -> None:
    taken = cluster.try_out(ACCEPTED[case])

    assert taken.returncode == 0, taken.stderr
    deployment, findings = parse(ACCEPTED[case])
    assert findings == []
    assert deployment is not None


def test_the_server_fills_in_what_the_models_have_as_defaults(cluster: Cluster) -> None:
    stored = json.loads(cluster.try_out(VALID).stdout)

    written, _ = parse(VALID)
    filled, findings = parse({key: value for key, value in stored.items() if key != "status"})

    assert findings == []
    assert written is not None
    assert filled is not None
    assert filled.spec == written.spec
    assert stored["spec"]["policy"]["dwell"] == "10m"
    assert stored["spec"]["routing"]["routes"] == [{"name": "default", "speculation": "Auto"}]
    assert stored["status"] == {"observedGeneration": -1}


def test_an_applied_object_shows_no_difference_and_kubectl_shows_its_columns(cluster: Cluster) -> None:
    document = changed("metadata.name", "shown")
    cluster.must("apply", "-f", "-", document=document)

    assert cluster.kubectl("diff", "-f", "-", document=document).returncode == 0
    cluster.must("apply", "-f", "-", document=document)
    head, row = cluster.must("get", "specdep", "shown", "-o", "wide").splitlines()
    assert head.split() == ["NAME", "READY", "MODE", "ACCEPTANCE", "AGE", "ENGINE", "DRAFT", "UPGRADE", "REPLICAS"]
    assert row.split()[-3:] == ["vLLM", "NGram", "4"]
    assert "specdeployment.specfleet.dev/shown" in cluster.must("get", "specfleet", "-o", "name")
    assert "ACCEPTANCE" in cluster.must("get", "specdeployments").splitlines()[0]
    assert "REPLICAS" not in cluster.must("get", "specdeployments").splitlines()[0]


def test_status_is_apart_from_spec(cluster: Cluster) -> None:
    cluster.must("apply", "-f", "-", document=changed("metadata.name", "apart"))
    status = {
        "status": {
            "observedGeneration": 1,
            "summary": {"mode": "1/1 speculative", "acceptance": "61%"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Available",
                    "message": "Both pools and the router serve.",
                    "lastTransitionTime": "2026-11-29T09:12:04Z",
                    "observedGeneration": 1,
                }
            ],
        }
    }

    cluster.must("patch", "specdep", "apart", "--subresource=status", "--type=merge", "-p", json.dumps(status))

    row = cluster.must("get", "specdep", "apart").splitlines()[1]
    assert row.split()[:5] == ["apart", "True", "1/1", "speculative", "61%"]
    stored = json.loads(cluster.must("get", "specdep", "apart", "-o", "json"))
    assert stored["metadata"]["generation"] == 1


def test_the_strategy_of_pools_stays(cluster: Cluster) -> None:
    document = external()
    document["metadata"]["name"] = "adopted"
    cluster.must("apply", "-f", "-", document=document)
    split = {"strategy": "Split", "replicas": 2, "external": None}
    patch = {"spec": {**VALID["spec"], "pools": split}}

    refused = cluster.kubectl("patch", "specdep", "adopted", "--type=merge", "-p", json.dumps(patch))

    assert refused.returncode != 0
    assert "strategy cannot be changed" in refused.stderr
    cluster.must("patch", "specdep", "adopted", "--type=merge", "-p", '{"spec": {"policy": {"dwell": "20m"}}}')


def test_the_engine_of_rendered_pools_stays(cluster: Cluster) -> None:
    document = copy.deepcopy(VALID)
    document["metadata"]["name"] = "rendered"
    cluster.must("apply", "-f", "-", document=document)
    patch = json.dumps({"spec": {"engine": {"type": "SGLang", "version": "0.5.23"}}})

    refused = cluster.kubectl("patch", "specdep", "rendered", "--type=merge", "-p", patch)

    assert refused.returncode != 0
    assert "engine.type cannot be changed" in refused.stderr
    cluster.must("patch", "specdep", "rendered", "--type=merge", "-p", '{"spec": {"engine": {"version": "0.33.0"}}}')


def test_explain_has_a_sentence_for_every_field_of_spec(cluster: Cluster) -> None:
    def fields(node: Document, path: str) -> Iterator[str]:
        for name, sub in node.get("properties", {}).items():
            if not sub.get("description"):
                yield f"{path}.{name}"
            yield from fields(sub.get("items", sub), f"{path}.{name}")

    assert list(fields(object_schema()["properties"]["spec"], "spec")) == []
    assert "k, the tokens drafted a round" in cluster.must("explain", "specdeployment.spec.drafts.tokens")


@pytest.mark.parametrize("file", sorted((REPOSITORY / "manifests/examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_taken(cluster: Cluster, file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        taken = cluster.try_out(document)

        assert taken.returncode == 0, taken.stderr
