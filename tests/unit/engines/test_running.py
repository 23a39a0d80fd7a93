"""What a router has to know of engines that somebody else runs, by release."""

from __future__ import annotations

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.running import running_engine


@pytest.mark.parametrize(
    ("release", "refused"),
    [
        (None, ("min_p", "logit_bias")),
        ("0.33.1", ("min_p", "logit_bias")),
        ("0.17.0", ("min_p", "logit_bias")),
        ("0.16.2", ("min_tokens", "min_p", "logit_bias")),
        ("0.14.0", ("min_tokens", "min_p", "logit_bias")),
        ("0.13.0", ()),
        ("nightly", ("min_p", "logit_bias")),
    ],
)
def test_vllm_is_asked_for_its_health_and_refuses_by_release(release: str | None, refused: tuple[str, ...]) -> None:
    found = running_engine(EngineType.VLLM, release)

    assert (found.health_path, found.also_healthy, found.refused_fields) == ("/health", (), refused)


@pytest.mark.parametrize(
    ("release", "path", "also"),
    [
        ("0.5.20", "/ready", ()),
        ("0.6.0", "/ready", ()),
        ("0.5.19", "/v1/models", (401,)),
        ("0.5.3.post1", "/v1/models", (401,)),
        (None, "/v1/models", (401,)),
    ],
)
def test_sglang_is_never_asked_for_a_token_to_prove_its_health(
    release: str | None, path: str, also: tuple[int, ...]
) -> None:
    found = running_engine(EngineType.SGLANG, release)

    assert (found.health_path, found.also_healthy, found.refused_fields) == (path, also, ())
