"""Sentences about pods: what is wrong, nothing that must not be told."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.conditions import Reason
from specfleet.handlers.masking import LIMIT, last_line, masked
from specfleet.handlers.pods import failed_create, pod_record
from tests.unit.handlers.samples import pod


def problem(container: dict[str, Any], **status: Any) -> tuple[Reason, str]:
    found = pod_record(
        pod(
            "a",
            "engine",
            "ngram",
            ready=False,
            containerStatuses=[{"name": "engine", "image": "e:1", **container}],
            **status,
        )
    ).problem
    assert found is not None
    return found.reason, found.message


@pytest.mark.parametrize(
    ("output", "reason", "words"),
    [
        ("ValueError: No available memory for the cache blocks. Try", Reason.OUT_OF_MEMORY, "lower max-model-len"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", Reason.OUT_OF_MEMORY, "does not hold the model"),
        ("GatedRepoError: 401 Client Error", Reason.ENGINE_CRASHES, "accept its licence"),
        ("error: unrecognized arguments: --foo", Reason.ENGINE_CRASHES, "does not know one of its arguments"),
        ("a\nRuntimeError: boom\n", Reason.ENGINE_CRASHES, "exit code 1: RuntimeError: boom"),
        ("", Reason.ENGINE_CRASHES, "see kubectl logs --previous"),
    ],
)
def test_a_crash_is_told_in_our_words_or_in_one_line_of_its_own(output: str, reason: Reason, words: str) -> None:
    found, message = problem(
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": output}},
        }
    )
    assert found is reason
    assert words in message


def test_an_unschedulable_pod_says_what_the_scheduler_says() -> None:
    conditions = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes: no nvidia.com/gpu",
        }
    ]
    body = pod("a", "engine", "ngram", ready=False)
    body["status"]["conditions"] = conditions
    found = pod_record(body).problem
    assert found is not None
    assert found.reason is Reason.UNSCHEDULABLE
    assert "no nvidia.com/gpu" in found.message


def test_a_container_that_starts_for_the_first_time_is_no_problem() -> None:
    body = pod("a", "engine", "ngram", ready=False)
    body["status"]["containerStatuses"] = [{"name": "engine", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    assert pod_record(body).problem is None


def test_a_ready_pod_has_no_problem_though_it_crashed_once() -> None:
    body = pod("a", "engine", "ngram")
    body["status"]["containerStatuses"] = [{"name": "engine", "lastState": {"terminated": {"exitCode": 1}}}]
    assert pod_record(body).problem is None


def test_a_quota_and_an_admission_denial_are_told_apart() -> None:
    assert failed_create('pods "x" is forbidden: exceeded quota: small').reason is Reason.QUOTA_EXCEEDED
    assert failed_create('pods "x" is forbidden: violates PodSecurity').reason is Reason.ADMISSION_DENIED


@pytest.mark.parametrize(
    "secret",
    [
        "hf_AbCdEfGhIjKlMnOp",
        "Bearer abcdef0123456789",
        "sk-proj-abcdefghijklmnop",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "AKIAIOSFODNN7EXAMPLE",
        "c3VwZXJzZWNyZXRzdXBlcnNlY3JldHN1cGVyc2VjcmV0c3VwZXI",
    ],
)
def test_what_looks_like_a_credential_is_masked(secret: str) -> None:
    assert secret not in masked(f"error: cannot use {secret} here")
    assert "here" in masked(f"error: cannot use {secret} here")


def test_values_of_telling_names_are_masked_and_the_names_stay() -> None:
    assert masked("HF_TOKEN=abc123 password: hunter2") == "HF_TOKEN=*** password: ***"
    assert masked("https://user:pw@host/x") == "https://***@host/x"


def test_output_is_one_bounded_line() -> None:
    said = masked("a\x1b[31mb\r\n\u202ec" + "d " * 500)
    assert len(said) <= LIMIT
    assert said.isprintable()
    assert last_line("x\n\n  y  \n") == "y"
