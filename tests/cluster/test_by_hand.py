"""`specfleet off`, `on` and `auto` against a running operator: served at once, over by itself, never against Git."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from specfleet.api.by_hand import ANNOTATION_BY_HAND
from specfleet.cli.main import app
from tests.cluster.api import eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster


def said(world: World, *words: str) -> Result:
    """The command's result."""
    options = ("--namespace", world.namespace, "--kubeconfig", str(world.kubeconfig))
    return CliRunner().invoke(app, [*words, *options])


def test_off_is_served_told_and_over_by_itself(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    generation = world.body()["metadata"]["generation"]
    result = said(world, "off", "assistant", "chat", "--for", "6s", "--reason", "INC-7: pages")
    assert result.exit_code == 0, result.output
    assert "route chat: off until" in result.output
    assert "All routers serve it" in result.output
    chat = world.route("chat")
    assert chat["speculativePercent"] == {"intended": 0, "served": 0}
    assert chat["reason"] == "OverrideNever"
    assert chat["message"].startswith("Set off by hand until ")
    assert "INC-7: pages" in chat["message"]
    assert chat["byHand"]["speculation"] == "off"
    assert "INC-7" in chat["history"][-1]["message"]
    assert world.route("code")["speculativePercent"]["served"] == 100
    assert world.body()["metadata"]["generation"] == generation
    assert eventually("the switch is told", lambda: world.events("SpeculationOff"))
    world.served("chat", 100)
    assert "byHand" not in world.route("chat")
    assert world.route("chat")["reason"] != "OverrideNever"


def test_auto_takes_back_and_never_in_the_spec_wins_over_on(world: World) -> None:
    world.create()
    world.speculation("chat", "Never")
    world.start()
    world.settled()
    refused = said(world, "on", "assistant", "chat", "--for", "1h", "--reason", "bench")
    assert refused.exit_code == 1
    assert "says speculation: Never in the spec, which wins" in refused.output
    assert said(world, "off", "assistant", "--for", "1h", "--reason", "all of it").exit_code == 0
    world.served("code", 0)
    taken_back = said(world, "auto", "assistant")
    assert taken_back.exit_code == 0, taken_back.output
    world.served("code", 100)
    assert world.route("chat")["speculativePercent"]["served"] == 0
    assert ANNOTATION_BY_HAND not in world.body()["metadata"]["annotations"]
    world.api.patch(
        "SpecDeployment", world.namespace, "assistant", {"metadata": {"annotations": {ANNOTATION_BY_HAND: "off!"}}}
    )
    told = eventually(
        "what cannot be read is told",
        lambda: one if ANNOTATION_BY_HAND in (one := world.condition("Valid"))["message"] else None,
    )
    assert "expected JSON, found 'off!'" in told["message"]
    assert world.route("code")["speculativePercent"]["served"] == 100


def test_without_an_operator_the_command_says_that_nothing_happened_yet(world: World) -> None:
    world.create()
    result = said(world, "off", "assistant", "--for", "1h", "--reason", "x", "--wait", "1s")
    assert result.exit_code == 3
    assert "the operator has not taken it up" in result.output


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("off", "assistant", "caht", "--for", "1h", "--reason", "x"), "has no route caht: its routes are code, chat"),
        (("off", "assistant", "--for", "2d", "--reason", "x"), "--for: expected a duration such as 60s or 1h30m"),
        (("off", "assistant", "--for", "9000h", "--reason", "x"), "expected --for between 1s and 744h, found 9000h"),
        (("on", "assistant", "--for", "1h", "--reason", " "), "expected --reason of 1 to 200 characters, found 0"),
        (("off", "nobody", "--for", "1h", "--reason", "x"), "expected a SpecDeployment nobody in namespace"),
        (("auto", "assistant", "caht"), "has no route caht"),
    ],
)
def test_what_cannot_be_said_is_answered(world: World, words: tuple[str, ...], answer: str) -> None:
    world.create()
    result = said(world, *words)
    assert result.exit_code == 1
    assert answer in result.output
    assert ANNOTATION_BY_HAND not in world.body()["metadata"].get("annotations", {})
