"""What the engine refuses under speculation is answered all the same."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from tests.node import routers
from tests.node.conftest import Fleet, Serve
from tests.node.kube import Kube

pytestmark = pytest.mark.node


def post(endpoint: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{endpoint}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.status, json.loads(response.read())


@pytest.mark.parametrize("refused", [{"min_p": 0.1}, {"logit_bias": {"5": 1.0}}])
def test_min_p_and_logit_bias_on_a_speculative_route_are_served_by_baseline(
    kube: Kube, serve: Serve, refused: dict[str, Any]
) -> None:
    fleet = serve(routes=[{"name": "all", "speculation": "Always"}])
    body = {"model": fleet.name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}

    status, plain = post(fleet.endpoint, body)
    assert status == 200
    assert "speculative_decoding" in plain["metrics"]

    status, answer = post(fleet.endpoint, body | refused)
    assert status == 200
    assert answer.get("metrics") is None
    pools = {key[1] for key, row in routers.rows(kube, fleet.name, fleet.namespace).items() if row.finished}
    assert pools == {"baseline", "ngram"}


def test_real_vllm_answers_min_p_through_the_router(real_fleet: Fleet) -> None:
    body = {
        "model": real_fleet.name,
        "messages": [{"role": "user", "content": "One, two,"}],
        "max_tokens": 4,
        "temperature": 0,
        "min_p": 0.1,
    }
    status, answer = post(real_fleet.endpoint, body)
    assert status == 200
    assert answer["choices"][0]["message"]["content"]
