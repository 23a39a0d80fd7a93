"""kubectl and `specfleet explain` tell what happened to a route, with figures, to someone who reads nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from tests.node.conftest import Fleet, Serve
from tests.node.install import REPOSITORY
from tests.node.kube import Kube, wait_for
from tests.node.load import Load, clients
from tests.node.test_operator_away import BAD, GOOD, POLICY, ROUTES, chat_is_off

pytestmark = pytest.mark.node

STORIES = REPOSITORY / "build" / "story"


def explain(kube: Kube, *words: str) -> str:
    program = REPOSITORY / ".venv" / "bin" / "specfleet"
    return subprocess.run(
        [program, "explain", *words, "--kubeconfig", kube.kubeconfig], capture_output=True, text=True, check=True
    ).stdout


def kept(name: str, text: str) -> str:
    STORIES.mkdir(parents=True, exist_ok=True)
    (STORIES / name).write_text(text)
    return text


def test_get_describe_and_explain_tell_a_switch_in_words_and_figures(kube: Kube, serve: Serve) -> None:
    fleet: Fleet = serve(routes=ROUTES, policy=POLICY)
    traffic = [clients("code", fleet.name, 2, headers=GOOD), clients("chat", fleet.name, 4, headers=BAD)]
    with Load(fleet.endpoint, traffic) as load:
        wait_for("chat to go to baseline", lambda: chat_is_off(fleet), seconds=180)
        wait_for("50 answers more", _more_than(load, load.tally.total + 50), seconds=60)

    table = kept("get.txt", kube.kubectl("get", "specdeployments", "-n", fleet.namespace))
    heading, line = table.splitlines()[0], next(one for one in table.splitlines() if one.startswith(fleet.name))
    assert re.findall(r"\S+", heading) == ["NAME", "READY", "MODE", "ACCEPTANCE", "AGE"]
    assert "True" in line
    assert "1/2 speculative" in line
    assert "%" in line

    described = kept("describe.txt", kube.kubectl("describe", "specdeployment", fleet.name, "-n", fleet.namespace))
    assert "SpeculationOff" in described
    message = fleet.route("chat")["message"]
    assert " ".join(message.split()[:3]) in " ".join(described.split())

    story = kept("explain.txt", explain(kube, fleet.name, "chat", "-n", fleet.namespace))
    assert "baseline" in story
    assert re.search(r"\d", story)
    assert "chat" in story
    assert message in " ".join(story.split())


def _more_than(load: Load, count: int) -> Callable[[], bool | None]:
    return lambda: load.tally.total > count or None
