"""The pieces of the mixed-traffic benchmark that its figures hang on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.bench import mixed
from tests.node.answers import Content
from tests.node.stub_fleet import DRAFT_TOKENS
from tests.node.traffic import Answer
from tests.stub import engine

CURVE = ((1.0, 60.0), (2.0, 94.0), (4.0, 160.0))


@pytest.mark.parametrize(
    ("running", "ms"), [(0.0, 60.0), (1.0, 60.0), (1.5, 77.0), (2.0, 94.0), (3.0, 127.0), (6.0, 226.0)]
)
def test_a_step_takes_as_long_as_the_curve_says_between_and_beyond_its_points(running: float, ms: float) -> None:
    assert engine.on_curve(CURVE, running) == pytest.approx(ms)


@pytest.mark.parametrize("wanted", [1.0, 1.05, 2.3, 4.27, 5.0])
def test_the_stub_yields_as_many_tokens_a_step_as_were_measured(wanted: float) -> None:
    rate = mixed.alpha_of(wanted)
    answers = [engine.decode(2000, DRAFT_TOKENS, rate, seed) for seed in range(20)]
    tokens, steps = sum(a.tokens - 1 for a in answers), sum(len(a.steps) - 1 for a in answers)
    assert tokens / steps == pytest.approx(wanted, rel=0.02)


def arm(name: str, ms_per_token: dict[str, float]) -> mixed.Arm:
    made = mixed.Arm(name, "")
    for minute in range(4):
        for route, ms in ms_per_token.items():
            content = Content("", "length", 11)
            ended = 5.0 + ms * 10 / 1000.0
            answer = Answer(route, True, 0.0, ended, 200, None, content=content, first_byte_at=5.0)
            made.add(answer, minute)
    return made


def test_the_mix_is_held_against_the_better_of_the_other_two_on_each_route() -> None:
    arms = {
        "on": arm("on", {"code": 20.0, "json": 25.0, "chat": 90.0}),
        "off": arm("off", {"code": 50.0, "json": 50.0, "chat": 50.0}),
        "mix": arm("mix", {"code": 15.0, "json": 20.0, "chat": 55.0}),
    }
    chat: dict[str, Any] = mixed.compared(arms, "chat", random.Random(1))
    assert chat["mixOverBetter.medianMsPerToken"]["ratio"] == pytest.approx(1.1)
    assert chat["mixOverBetter.medianMsPerToken"]["interval95"] == pytest.approx([1.1, 1.1])
    every = mixed.compared(arms, None, random.Random(1))
    assert every["mixOverBetter.msPerToken"]["ratio"] == pytest.approx((15 + 20 + 55) / 135, rel=1e-2)


def test_what_was_sent_before_the_measurement_is_counted_and_not_timed() -> None:
    made = mixed.Arm("on", "")
    answer = Answer("chat", True, 0.0, 1.0, 200, None, content=Content("", "length", 11), first_byte_at=0.5)
    made.add(answer, None)
    made.add(Answer("chat", True, 0.0, 1.0, 503, "expected status 200, found 503"), 0)
    assert made.requests == 2
    assert not any(made.minutes.values())
    assert [one.status for one in made.failures] == [503]
