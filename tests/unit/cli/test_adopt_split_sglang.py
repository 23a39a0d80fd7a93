"""`specfleet adopt --split` of SGLang: its flags, its names for drafts, and what cannot go along."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.adopted import LLAMA, Manifest, adopt, adopted, deployment

NEWEST = "lmsysorg/sglang:v0.5.23"
HEAD = "jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B"


def server(*words: str, image: str = NEWEST, pod: Manifest | None = None, **fields: Any) -> Manifest:
    """A Deployment of one container that runs SGLang."""
    command = ["python3", "-m", "sglang.launch_server"]
    return deployment(
        "llama", {"name": "server", "image": image, "command": command, "args": list(words), **fields}, **(pod or {})
    )


def split(manifest: Manifest, *arguments: str) -> Manifest:
    """`spec` of what is printed."""
    found: Manifest = adopted("--split", *arguments, manifests=(manifest,))["spec"]
    return found


def said(manifest: Manifest, *arguments: str) -> tuple[int, str]:
    """Exit status, and what is said beside the object or instead of it."""
    ended = adopt("--split", *arguments, manifests=(manifest,))
    return ended.returncode, ended.stderr


def drafts(*words: str, image: str = NEWEST) -> Manifest:
    """The draft of an engine with these flags of speculation."""
    (found,) = split(server("--model-path", LLAMA, *words, image=image))["drafts"]
    return dict(found)


def test_arguments_go_to_the_fields_that_are_theirs() -> None:
    manifest = server(
        "--model", LLAMA, "--served-model-name", "llama", "--revision=abc", "--tp", "2", "--dp-size", "2",
        "--max-running-requests", "64", "--mem-frac", "0.8", "--trust-remote-code", "--lora-paths", "a=/a", "b=/b",
        "--speculative-algorithm", "EAGLE3", "--speculative-draft-model", HEAD,
        "--speculative-draft-model-revision=def", "--speculative-num-steps=3", "--speculative-eagle-topk=1",
        "--speculative-num-draft-tokens=4", "--enable-metrics", "--host", "0.0.0.0",
    )  # fmt: skip
    spec = split(manifest)

    assert spec["engine"] == {
        "type": "SGLang",
        "image": NEWEST,
        "args": {"max-running-requests": "64", "mem-fraction-static": "0.8", "trust-remote-code": ""},
        "extraArgs": ["--lora-paths", "a=/a", "b=/b"],
    }
    assert spec["target"] == {
        "model": LLAMA,
        "servedName": "llama",
        "revision": "abc",
        "parallelism": {"tensor": 2, "data": 2},
    }
    assert spec["drafts"] == [{"name": "eagle3", "mode": "EAGLE3", "model": HEAD, "revision": "def", "tokens": 3}]
    assert spec["policy"] == {"enforcement": "Observe", "initial": "Speculative"}
    assert "specfleet sets these itself: --enable-metrics, --host 0.0.0.0" in said(manifest)[1]


@pytest.mark.parametrize(
    ("words", "draft"),
    [
        (
            ("--speculative-algo=STANDALONE", "--speculative-draft-model-path=a/b", "--speculative-num-steps=4"),
            {"mode": "DraftModel", "model": "a/b", "tokens": 4},
        ),
        (
            ("--speculative-algorithm=NEXTN", "--speculative-num-draft-tokens=3"),
            {"mode": "MTP", "tokens": 2},
        ),
        (
            ("--speculative-algorithm=EAGLE", "--speculative-num-steps=1"),
            {"mode": "MTP", "tokens": 1},
        ),
        (
            (
                "--speculative-algorithm=EAGLE",
                "--speculative-draft-model-path=a/b",
                "--speculative-num-steps=5",
                "--speculative-eagle-topk=8",
                "--speculative-num-draft-tokens=64",
            ),
            {
                "mode": "EAGLE",
                "model": "a/b",
                "tokens": 5,
                "args": {"speculative-eagle-topk": "8", "speculative-num-draft-tokens": "64"},
            },
        ),
        (
            ("--speculative-algorithm=NGRAM",),
            {
                "mode": "NGram",
                "tokens": 11,
                "args": {"speculative-ngram-max-bfs-breadth": "10", "speculative-ngram-min-bfs-breadth": "1"},
            },
        ),
        (
            (
                "--speculative-algorithm=DFLASH",
                "--speculative-draft-model-path=a/b",
                "--speculative-dflash-block-size=8",
            ),
            {"mode": "DFlash", "model": "a/b", "tokens": 7},
        ),
    ],
    ids=["standalone", "nextn", "eagle-of-the-target", "tree", "ngram-tree", "dflash"],
)
def test_drafts_are_what_they_were(words: tuple[str, ...], draft: Manifest) -> None:
    assert drafts(*words) == {"name": draft["mode"].lower(), **draft}


def test_the_windows_of_older_releases_are_fields_and_go_with_a_newer_one() -> None:
    old = server(
        "--model-path", LLAMA, "--speculative-algorithm=NGRAM", "--speculative-ngram-max-match-window-size=8",
        image="lmsysorg/sglang:v0.5.4",
    )  # fmt: skip
    (draft,) = split(old)["drafts"]
    assert (draft["tokens"], draft["ngram"]) == (7, {"minMatch": 1, "maxMatch": 8})

    (newer,) = split(old, "--engine-version", "0.5.23")["drafts"]
    assert (newer["tokens"], "ngram" in newer) == (11, False)


def test_what_the_engine_chooses_itself_is_said() -> None:
    status, notes = said(
        server("--model-path", LLAMA, "--speculative-algorithm=EAGLE3", f"--speculative-draft-model-path={HEAD}")
    )
    assert status == 0
    assert "left to the engine, which chooses by architecture, often a tree: a chain of 3 is written" in notes


def test_an_engine_without_a_limit_is_told_that_it_gets_one() -> None:
    _, notes = said(server("--model-path", LLAMA))
    assert "both pools get 48: write engine.args max-running-requests for more" in notes


def test_a_model_in_an_image_volume_goes_along() -> None:
    volume = {"name": "weights", "image": {"reference": "registry.example/models:1", "pullPolicy": "IfNotPresent"}}
    spec = split(
        server(
            "--model-path", "/models/llama",
            volumeMounts=[{"name": "weights", "mountPath": "/models/llama"}], pod={"volumes": [volume]},
        )
    )  # fmt: skip
    assert spec["target"]["source"] == {"image": volume["image"]}
    assert "volumes" not in spec["pools"].get("template", {}).get("spec", {})


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        (server("--model-path", LLAMA, image="lmsysorg/sglang:latest"), "names no SGLang release: write which one"),
        (server("--model-path", LLAMA, image="lmsysorg/sglang:v0.4.9"), "SGLang 0.4.9, which is older"),
        (
            server("--model-path", LLAMA, "--speculative-algorithm=DFLASH", "--speculative-draft-model-path=a/b"),
            "write --speculative-num-draft-tokens into its arguments",
        ),
        (server("--model-path", LLAMA, "--speculative-algorithm=LOOKAHEAD"), "which specfleet does not render"),
    ],
)
def test_what_cannot_be_rendered_is_answered_with_what_to_do(manifest: Manifest, part: str) -> None:
    status, answer = said(manifest)
    assert status == 1
    assert part in answer
