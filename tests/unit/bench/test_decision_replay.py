"""The loop closed through `specfleet replay`: the same switches in the same minutes as the operator's own path."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from specfleet.cli.history.times import shown
from specfleet.cli.main import app
from tests.bench.decision.drive import Minute, Operated, driven
from tests.bench.decision.rules import Shipped
from tests.bench.decision.through_replay import POLICY, History, Lines, Program, scraped
from tests.bench.decision.traffic import EPOCH, Counters, Traffic, drawn
from tests.bench.decision.truth import MINUTES, K
from tests.testbed.prometheus_server import PrometheusServer
from tests.unit.cli.recording import Line, stored


def moves(minutes: list[Minute]) -> list[tuple[int, bool]]:
    return [(at, minutes[at].on) for at in range(1, len(minutes)) if minutes[at].on != minutes[at - 1].on]


@pytest.fixture(scope="module")
def day() -> Traffic:
    """A route that does not pay in the morning and pays from noon on."""
    return drawn(("recover", "mid", 9))


@pytest.fixture(scope="module")
def operated(day: Traffic) -> list[Minute]:
    return driven(day, Operated(Shipped()))


def test_a_history_shown_scrape_by_scrape_decides_each_minute_as_the_operator(
    day: Traffic, operated: list[Minute]
) -> None:
    assert len(moves(operated)) == 2
    assert driven(day, History()) == operated


def test_lines_are_answered_with_the_same_switches(day: Traffic, operated: list[Minute]) -> None:
    found = driven(day, Operated(Lines()))
    assert moves(found) == moves(operated)
    # A line says nothing of the seconds that it covers, so the share that explores may be a percent off.
    assert max(abs(one.percent - other.percent) for one, other in zip(found, operated, strict=True)) <= 1


def test_the_command_in_a_process_of_its_own_answers_as_its_function(day: Traffic) -> None:
    program = Program()
    try:
        assert driven(day, Operated(program)) == driven(day, Operated(Lines()))
    finally:
        program.close()


class Recording(Operated):
    """The operator's path, with all that a Prometheus would have scraped meanwhile, `later` seconds later."""

    def __init__(self, later: float) -> None:
        super().__init__(Shipped())
        self._later = later
        self.lines: list[Line] = []

    def read(self, router: str, started_at: float, at: float, counters: Counters) -> None:
        super().read(router, started_at, at, counters)
        self.lines += scraped(router, started_at + self._later, at + self._later, counters)


def test_the_command_finds_in_a_recorded_day_the_switches_that_were_made(
    day: Traffic, operated: list[Minute], tmp_path: Path
) -> None:
    """A real Prometheus with a whole simulated day: lost scrapes, restarts and an outage in it."""
    begin = (time.time() // 3600.0 - 25.0) * 3600.0
    recording = Recording(begin - EPOCH)
    assert driven(day, recording) == operated
    stored(recording.lines, tmp_path)
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    server = PrometheusServer(tmp_path).start()
    try:
        asked = ["--prometheus", server.url, "--deployment", "bench/days", "--selector", 'namespace="bench"']
        asked += ["--policy", str(tmp_path / "policy.yaml"), "--draft-tokens", str(K), "--output", "json"]
        span = ["--start", shown(begin), "--end", shown(begin + 60.0 * MINUTES)]
        result = CliRunner().invoke(app, ["replay", *asked, *span])
    finally:
        server.stop()
    assert result.exit_code == 0, result.output
    [route] = json.loads(result.stdout)["routes"]
    said = [
        (round((datetime.fromisoformat(one["at"]).timestamp() - begin) / 60.0), one["pool"] == "speculative")
        for one in route["switches"]
    ]
    assert said == moves(operated)
