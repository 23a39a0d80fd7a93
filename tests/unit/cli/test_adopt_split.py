"""`specfleet adopt --split`: a running engine as pools that specfleet runs, and what cannot go along."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.cli.adopting.scene import scene_of_text
from specfleet.cli.adopting.side import side_of
from specfleet.cli.adopting.split import SplitOptions
from specfleet.cli.adopting.split import split as split_pools
from specfleet.engines.launch import launch, literal_variables
from specfleet.render.objects import render_all
from specfleet.settings import OperatorSettings
from tests.unit.cli.adopted import LLAMA, SPECULATION, Manifest, adopt, adopted, deployment, engine
from tests.unit.cli.test_validate_and_render import specfleet

HUB_TOKEN = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}
WEIGHTS = {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}


def split(manifest: Manifest, *arguments: str) -> Manifest:
    """`spec` of what is printed."""
    found: Manifest = adopted("--split", *arguments, manifests=(manifest,))["spec"]
    return found


def said(manifest: Manifest, *arguments: str) -> str:
    """What is said beside it, as one line."""
    ended = adopt("--split", *arguments, manifests=(manifest,))
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def refused(manifest: Manifest, *arguments: str) -> str:
    """Why there is none."""
    ended = adopt("--split", *arguments, manifests=(manifest,))
    assert (ended.returncode, ended.stdout) == (1, "")
    return ended.stderr


def server(
    *words: str, pod: Manifest | None = None, image: str = "vllm/vllm-openai:v0.32.0", **fields: Any
) -> Manifest:
    """A Deployment of one engine container."""
    return deployment("llama", engine(*words, image=image, **fields), **(pod or {}))


def test_arguments_go_to_the_fields_that_are_theirs() -> None:
    spec = split(
        server(
            LLAMA, "--served-model-name", "llama", "--revision=abc", "-tp", "2", "--max-num-seqs", "128",
            "--enable-prefix-caching", "--kv-cache-dtype=fp8", "--middleware=a.B", "--middleware=c.D",
            "--speculative-config", SPECULATION, "--data-parallel-size=2",
        ),
    )  # fmt: skip

    assert spec["engine"] == {
        "type": "vLLM",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": {"max-num-seqs": "128", "enable-prefix-caching": "", "kv-cache-dtype": "fp8"},
        "extraArgs": ["--middleware=a.B", "--middleware=c.D"],
    }
    assert spec["target"] == {
        "model": LLAMA,
        "servedName": "llama",
        "revision": "abc",
        "parallelism": {"tensor": 2, "data": 2},
    }
    assert spec["drafts"] == [{"name": "ngram", "mode": "NGram", "tokens": 5, "ngram": {"minMatch": 2, "maxMatch": 4}}]
    assert spec["policy"] == {"enforcement": "Observe", "initial": "Speculative"}


def test_old_spellings_become_the_release_that_is_asked_for() -> None:
    old = server(
        "--model", LLAMA, "--speculative-model=[ngram]", "--num-speculative-tokens", "3", "--ngram-prompt-lookup-max=3",
        "--disable-log-requests", "--swap-space", "8", image="vllm/vllm-openai:v0.6.3",
    )  # fmt: skip
    old["spec"]["template"]["spec"]["containers"][0]["command"] = [
        "python3",
        "-m",
        "vllm.entrypoints.openai.api_server",
    ]
    spec = split(old, "--engine-version", "0.32.0")

    assert "vLLM 0.6.3, which is older than what specfleet renders" in refused(old)
    assert spec["engine"] == {"type": "vLLM", "version": "0.32.0"}
    assert spec["drafts"][0] == {
        "name": "ngram",
        "mode": "NGram",
        "tokens": 3,
        "ngram": {"minMatch": 3, "maxMatch": 3},
    }
    notes = said(old, "--engine-version", "0.32.0")
    assert "the image vllm/vllm-openai:v0.6.3 is vLLM 0.6.3: the public image of 0.32.0 takes its place" in notes
    assert "--swap-space 8: vLLM 0.32.0 does not know this flag; 0.8 to 0.17 had it; preempted requests" in notes


def test_a_fleet_of_a_release_without_figures_is_carried_as_it_is() -> None:
    old = server(
        LLAMA, '--speculative-config={"method":"ngram","num_speculative_tokens":3}', "--swap-space=8",
        "--num-scheduler-steps=1", image="vllm/vllm-openai:v0.10.2",
    )  # fmt: skip
    spec = split(old)

    assert spec["engine"] == {"type": "vLLM", "image": "vllm/vllm-openai:v0.10.2", "args": {"swap-space": "8"}}
    assert "--num-scheduler-steps 1: vLLM 0.10.2 does not know this flag" in said(old)


def test_an_image_without_a_release_needs_one_to_be_named() -> None:
    latest = server(LLAMA, image="registry.example/vllm:latest")

    assert "names no vLLM release: write which one it is with --engine-version" in refused(latest)
    assert split(latest, "--engine-version", "0.31.0")["engine"] == {
        "type": "vLLM",
        "version": "0.31.0",
        "image": "registry.example/vllm:latest",
    }
    assert "expected a vLLM release from 0.8.5 on" in refused(latest, "--engine-version", "soon")


def test_variables_go_along_and_secrets_by_reference() -> None:
    manifest = server(
        LLAMA, "--api-key", "$(CLIENT_KEY)", "--seed", "$(SEED)", "--chat-template=$$(X)/$(LATER)",
        env=[
            HUB_TOKEN,
            {"name": "CLIENT_KEY", "valueFrom": {"secretKeyRef": {"name": "k", "key": "key"}}},
            {"name": "LATER", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "d"}}},
            {"name": "SEED", "value": "7"},
            {"name": "VLLM_PORT", "value": "9"},
            {"name": "FILE", "valueFrom": {"fileKeyRef": {"path": "x"}}},
        ],
        envFrom=[{"secretRef": {"name": "all"}}],
    )  # fmt: skip
    spec, notes = split(manifest), said(manifest)

    assert spec["target"]["source"] == {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
    assert [one["name"] for one in spec["engine"]["env"]] == ["CLIENT_KEY", "LATER", "SEED", "VLLM_API_KEY"]
    assert spec["engine"]["env"][-1]["valueFrom"] == {"secretKeyRef": {"name": "k", "key": "key"}}
    assert spec["engine"]["args"] == {"seed": "7", "chat-template": "$$(X)/$(LATER)"}
    assert "the variable VLLM_PORT: VLLM_PORT is not yours to set" in notes
    assert "the variable FILE: fileKeyRef cannot be written" in notes
    assert "envFrom: the variables cannot be checked there" in notes


def test_a_key_in_plain_text_is_neither_carried_nor_shown() -> None:
    manifest = server(LLAMA, "--api-key", "s3cret", "--hf-token=t0ken")
    ended = adopt("--split", manifests=(manifest,))

    assert "s3cret" not in ended.stdout + ended.stderr
    assert "t0ken" not in ended.stdout + ended.stderr
    assert "--api-key ...: a key on the command line is readable" in ended.stderr


def test_the_pod_goes_along_as_a_template() -> None:
    manifest = server(
        "/models/llama/8b", "--served-model-name=llama",
        resources={"limits": {"nvidia.com/gpu": 1, "cpu": "8"}, "requests": {"memory": "32Gi", "nvidia.com/gpu": 1}},
        volumeMounts=[
            {"name": "dshm", "mountPath": "/dev/shm"},
            {"name": "weights", "mountPath": "/models", "subPath": "v2"},
            {"name": "cache", "mountPath": "/root/.cache"},
        ],
        startupProbe={"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 240, "periodSeconds": 10},
        securityContext={"runAsUser": 1000},
        pod={
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "runtimeClassName": "nvidia",
            "imagePullSecrets": [{"name": "registry"}],
            "terminationGracePeriodSeconds": 600,
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "volumes": [
                WEIGHTS,
                {"name": "cache", "emptyDir": {}},
                {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
                {"name": "unused", "emptyDir": {}},
            ],
        },
    )  # fmt: skip
    manifest["spec"]["template"]["metadata"]["annotations"] = {"prometheus.io/scrape": "true"}
    spec = split(manifest)

    assert spec["target"]["source"] == {"persistentVolumeClaim": {"claimName": "weights", "path": "v2/llama/8b"}}
    assert "accelerator" not in spec["pools"]
    assert spec["pools"]["template"] == {
        "metadata": {"annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "nodeSelector": {"gpu": "h100"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "runtimeClassName": "nvidia",
            "imagePullSecrets": [{"name": "registry"}],
            "terminationGracePeriodSeconds": 600,
            "volumes": [
                WEIGHTS,
                {"name": "cache-volume", "emptyDir": {}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            ],
            "containers": [
                {
                    "name": "engine",
                    "resources": {"limits": {"cpu": "8"}, "requests": {"memory": "32Gi"}},
                    "securityContext": {"runAsUser": 1000},
                    "volumeMounts": [
                        {"name": "weights", "mountPath": "/models", "subPath": "v2"},
                        {"name": "cache-volume", "mountPath": "/root/.cache"},
                    ],
                    "startupProbe": {"failureThreshold": 240, "periodSeconds": 10},
                }
            ],
        },
    }


def test_what_is_adopted_renders_with_the_resources_and_volumes_of_the_original() -> None:
    manifest = server(
        "/models/llama",
        resources={"limits": {"nvidia.com/gpu": 1, "cpu": "8"}},
        volumeMounts=[{"name": "weights", "mountPath": "/models/llama"}],
        pod={"volumes": [WEIGHTS]},
    )
    document = adopted("--split", manifests=(manifest,))
    pools = [
        item["spec"]["template"]["spec"]
        for item in render_all(SpecDeployment.parse(document), OperatorSettings())
        if item["kind"] == "Deployment" and not item["metadata"]["name"].endswith("-router")
    ]

    for pod in pools:
        container = pod["containers"][0]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "cpu": "8"}
        assert {"name": "model", "mountPath": "/models/llama", "readOnly": True} in container["volumeMounts"]
    assert "template" not in document["spec"]["pools"] or "volumes" not in document["spec"]["pools"]["template"]["spec"]


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        (server(LLAMA, pod={"hostNetwork": True}), "spec.hostNetwork of the pods: the template asks for"),
        (server(LLAMA, pod={"serviceAccountName": "hub"}), "spec.serviceAccountName of the pods"),
        (server(LLAMA, pod={"terminationGracePeriodSeconds": 60}), "spec.terminationGracePeriodSeconds of the pods"),
        (server(LLAMA, securityContext={"privileged": True}), "asks for all rights on the host"),
        (server(LLAMA, lifecycle={"preStop": {"sleep": {"seconds": 5}}}), "lifecycle of the engine's container"),
        (server(LLAMA, "--port=9000", "--host=::"), "specfleet sets these itself: --port 9000, --host ::"),
        (server(LLAMA, "--data-parallel-rank=1"), "--data-parallel-rank 1: one engine pod is one replica"),
        (server(LLAMA, "--logits-processors", "a:B", image="vllm/vllm-openai:v0.31.0"), "refuses custom logits"),
        (server(LLAMA, "--override-generation-config", '{"min_p": 0.1}'), "vLLM refuses min_p under speculation"),
        (server(LLAMA, "--max-num-seqs=many"), "max-num-seqs also sizes the router's limits"),
        (server(LLAMA, "--aux-output-config={}", image="vllm/vllm-openai:v0.29.0"), "vLLM 0.29.0 does not know this"),
        (server(LLAMA, "--served-model-name", "a", "b"), "the further name b: add a route with match.model b"),
        (server(LLAMA, resources={"limits": {"nvidia.com/gpu": 4}}), "pods ask for 4 nvidia.com/gpu, and"),
        (server(LLAMA, "--compilation-config='{\"level\": 3}'"), "it is written as JSON here"),
        (
            server(
                LLAMA,
                volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
                pod={"volumes": [{"name": "scratch", "hostPath": {"path": "/mnt"}}]},
            ),
            "volume scratch: a directory of the node, which the operator's setting allowHostPath does not allow",
        ),
        (
            server(
                LLAMA,
                "--speculative-config",
                '{"method": "ngram", "num_speculative_tokens": 5, "disable_by_batch_size": 8, "enforce_eager": true}',
            ),
            "disable_by_batch_size of the speculative config: it did nothing since 0.10",
        ),
        (
            server(LLAMA, "--spec-method=ngram", "--spec-tokens=4", "--speculative-config.moe_backend=triton"),
            "moe_backend of the speculative config",
        ),
        (server(LLAMA), "n-gram drafts of 4 tokens are a suggestion"),
    ],
)  # fmt: skip
def test_what_cannot_go_along_is_left_out_and_named(manifest: Manifest, part: str) -> None:
    ended = adopt("--split", manifests=(manifest,))

    assert ended.returncode == 0, ended.stderr
    assert part in ended.stderr
    assert specfleet("validate", "-f", "-", stdin=ended.stdout).returncode == 0


def test_lossy_acceptance_is_kept_because_it_ran_so_and_named() -> None:
    config = {
        "method": "ngram",
        "num_speculative_tokens": 2,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": 1.5,
    }
    manifest = server(LLAMA, "--speculative-config", json.dumps(config))

    draft = split(manifest)["drafts"][0]
    assert draft["allowLossy"] is True
    assert draft["args"] == {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": "1.5"}
    assert "changes what the target would have answered: allowLossy: true is set" in said(manifest)


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        (server("--port=8000"), "its arguments name no model"),
        (server("gpt2"), "the model 'gpt2' is neither an id such as owner/name nor an absolute path"),
        (server("s3://bucket/model"), "is neither an id such as owner/name"),
        (server("$(MODEL)", env=[HUB_TOKEN | {"name": "MODEL"}]), "the model '$(MODEL)' is neither"),
        (server("/models/llama"), "lies in the image or is made by the container itself"),
        (
            server(
                "/models/llama",
                volumeMounts=[{"name": "m", "mountPath": "/models"}],
                pod={"volumes": [{"name": "m", "emptyDir": {}}]},
            ),
            "is on a volume of kind emptyDir",
        ),
        (
            server(
                "/models/llama",
                volumeMounts=[{"name": "m", "mountPath": "/models"}],
                pod={"volumes": [{"name": "m", "hostPath": {"path": "/mnt"}}]},
            ),
            "the operator's setting allowHostPath is false",
        ),
        (
            server(
                "/models/llama/8b",
                volumeMounts=[{"name": "m", "mountPath": "/models/llama"}],
                pod={"volumes": [{"name": "m", "image": {"reference": "registry.example/models:1"}}]},
            ),
            "is on a volume of kind image, in a directory of it",
        ),
        (
            deployment("s", {"name": "s", "image": "vllm/vllm-openai", "command": ["sh", "-c", "vllm serve $M"]}),
            "a variable or a substitution ($M)",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_rendered_is_answered_with_what_to_do(manifest: Manifest, part: str) -> None:
    assert part in refused(manifest)


def test_a_directory_of_the_node_goes_along_where_settings_allow_it(tmp_path: Any) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("allowHostPath: true\n")
    manifest = server(
        "/models/llama/8b",
        volumeMounts=[{"name": "m", "mountPath": "/models"}],
        pod={"volumes": [{"name": "m", "hostPath": {"path": "/mnt/models/"}}]},
    )

    spec = split(manifest, "--settings", str(settings))

    assert spec["target"]["source"] == {"hostPath": {"path": "/mnt/models/llama/8b"}}


def test_the_fleet_has_at_least_two_replicas_and_cpu_engines_ask_for_no_accelerator() -> None:
    manifest = server(LLAMA)
    manifest["spec"]["replicas"] = 1

    assert split(manifest)["pools"] == {"replicas": 2, "accelerator": {"resource": ""}}
    assert "has 1 replica(s): the two pools need 2" in said(manifest)
    manifest["spec"]["replicas"] = 5
    assert split(manifest)["pools"]["replicas"] == 5


def test_what_makes_the_deployment_is_named_as_what_to_delete() -> None:
    manifest = server(LLAMA)
    manifest["metadata"]["ownerReferences"] = [{"kind": "InferenceService", "name": "chat", "controller": True}]

    text = adopt("--split", manifests=(manifest,)).stdout

    assert "delete InferenceService/chat, which makes deployment/llama" in " ".join(text.replace("#", "").split())


# Letters of which Kubernetes' references and YAML's syntax are made, and any others.
TEXT = st.text(st.sampled_from("$$$()SOME a-#:&\n\u2028\x07'") | st.characters(codec="utf-8"), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(TEXT, TEXT)
@example("7", "$(SOME) $$(SOME) $$$(SOME) $$$$ $(OTHER) $")
def test_any_text_goes_along_as_it_was(variable: str, value: str) -> None:
    manifest = server(LLAMA, f"--chat-template={value}", env=[{"name": "SOME", "value": variable}])
    scene = scene_of_text(yaml.safe_dump(manifest), "here", None)
    adopted = split_pools(scene, side_of(scene, "llama", None), SplitOptions(None, None, OperatorSettings()))

    engine = yaml.safe_load(adopted.text())["spec"]["engine"]
    assert engine["env"] == [{"name": "SOME", "value": variable}]
    known = literal_variables([("SOME", variable)])
    assert launch(["x", engine["args"]["chat-template"]], known).words == launch(["x", value], known).words


def test_the_same_input_gives_the_same_text() -> None:
    manifest = server(LLAMA, "--speculative-config", SPECULATION, pod={"nodeSelector": {"b": "1", "a": "2"}})
    first, second = (adopt("--split", manifests=(manifest,)).stdout for _ in range(2))

    assert first == second
    assert yaml.safe_load(first)["metadata"]["name"] == "llama"
