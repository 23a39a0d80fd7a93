"""vLLM before 0.29: one golden folder for each mode and release from which on its pods look different.

A folder stands for its own release and those after it, up to the next folder of its mode:

| release | what changes |
|---|---|
| 0.8.5   | the oldest; both pools run one of two engines: V1 for n-gram, EAGLE and EAGLE-3, else V0 |
| 0.9.0   | Medusa on V1; MTP |
| 0.9.1   | keep-alive is set |
| 0.11.0  | MTP has one name |
| 0.11.1  | one engine; suffix decoding |
| 0.14.0  | requests with min_tokens, min_p or logit_bias go to baseline (n-gram's folder has the router) |
| 0.15.0  | draft models on V1 |
| 0.17.0  | min_tokens does not |
| 0.18.0  | the engine drains by itself |
| 0.20.0  | DFlash |
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module
from specfleet.engines.vllm_drafts import table
from specfleet.engines.vllm_tables import FIGURES_SINCE, OLDEST
from tests.render.cases import FIXTURES, case_folders

Facts = tuple[EngineFacts, ...]
READ = [release for release in table().facts.releases if OLDEST <= release < FIGURES_SINCE]
GRID = [(mode, release) for mode in DraftMode for release in READ if mode in table().available(release)]


@lru_cache
def folders() -> dict[DraftMode, dict[Version, dict[str, Any]]]:
    """SpecDeployments of the folders, by mode and the release that they are named after."""
    found: dict[DraftMode, dict[Version, dict[str, Any]]] = {mode: {} for mode in DraftMode}
    for folder in case_folders():
        release = Version(folder.parent.name) if folder.parent.parent == FIXTURES / "vllm" else FIGURES_SINCE
        if release < Version("0.29"):
            document = _document(folder)
            assert document["spec"]["engine"]["version"] == str(release)
            found[DraftMode(document["spec"]["drafts"][0]["mode"])][release] = document
    return found


def _document(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((folder / "cr.yaml").read_text())
    return document


def line_of(mode: DraftMode, release: Version) -> Version:
    """The folder that stands for a release."""
    return max(first for first in folders()[mode] if first <= release)


def pods(mode: DraftMode, folder: Version, release: Version) -> Facts:
    """What the pods of a folder's SpecDeployment are made of, in a release; but for the release's own name."""
    document = folders()[mode][folder]
    spec = {**document["spec"], "engine": {**document["spec"]["engine"], "version": str(release)}}
    deployment = SpecDeployment.parse({**document, "spec": spec})
    module = engine_module(EngineType.VLLM)
    both = [module.facts(deployment, speculative=speculative) for speculative in (False, True)]
    return tuple(
        replace(facts, release="", image="", refused_fields=facts.refused_fields if mode is DraftMode.NGRAM else ())
        for facts in both
    )


@pytest.mark.parametrize(("mode", "release"), GRID, ids=[f"{mode}-{release}" for mode, release in GRID])
def test_a_release_without_a_folder_is_rendered_like_the_one_before_it_that_has_one(
    mode: DraftMode, release: Version
) -> None:
    first = line_of(mode, release)

    assert pods(mode, first, release) == pods(mode, first, first)


@pytest.mark.parametrize("mode", DraftMode)
def test_a_folder_is_there_for_what_it_changes(mode: DraftMode) -> None:
    for release in folders()[mode]:
        before = [one for one in READ if one < release]
        if before and mode in table().available(before[-1]):
            assert pods(mode, release, before[-1]) != pods(mode, release, release), f"{release} changes nothing"
