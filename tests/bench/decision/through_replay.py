"""The loop closed through `specfleet replay` instead of the rule itself: by its lines, and by its reading of a history.

`Lines` talks to it as a user's program would (`Program`: in a process of its own). `History` shows the command's own
reading of a history (`Grid`, `Trial`) each scrape as it happens, and lets the trial's answer set the share of the
traffic that is scraped next. The command alone cannot do that: what a Prometheus server has recorded is past. `scraped`
gives the same scrapes as lines for a Prometheus server, for a replay of the whole day afterwards by the command itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import yaml

from specfleet.api.names import BASELINE_POOL
from specfleet.cli.history.recorded import Grid, PoolCounts, Sample
from specfleet.cli.replay import replay
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block
from specfleet.decision.samples import RouteTotals
from specfleet.decision.whatif import Recorded, Traffic, Trial
from tests.bench.decision.drive import ROUTE, Minute
from tests.bench.decision.rules import CONFIG
from tests.bench.decision.traffic import EPOCH, Counters
from tests.bench.decision.truth import BREAK_EVEN, K

POLICY = {"initial": "Speculative", "breakEven": {"source": "Fixed", "tokensPerStep": f"{BREAK_EVEN:.2f}"}}
DRAFT = "ngram"
COMMAND = [sys.executable, "-c", "from specfleet.cli.main import main; main()", "replay", "--draft-tokens", str(K)]


class Lines:
    """The rule behind `specfleet replay --policy FILE`: a line a minute, and its answer. A minute held is no line."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._answers = replay(iter(self._lines.popleft, ""), yaml.safe_dump(POLICY), K)
        self._last = 100, True

    def minute(self, at: float, block: Block | None, hold: Hold | None) -> tuple[int, bool]:
        if block is not None:
            counts = {name: getattr(block, name) for name in ("tokens", "accepted", "drafted", "requests")}
            answer = json.loads(self._asked(json.dumps({"t": at, **counts})))
            assert "error" not in answer, answer
            self._last = answer["speculativePercent"], answer["pool"] == "speculative"
        return self._last

    def _asked(self, line: str) -> str:
        self._lines.append(line)
        return next(self._answers)


class Program(Lines):
    """The same through a process of its own, by its standard input and output. `close` it in the end."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        policy = Path(self._folder.name) / "policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY))
        self._running = subprocess.Popen(
            [*COMMAND, "--policy", str(policy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _asked(self, line: str) -> str:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        self._running.stdin.write(line + "\n")
        self._running.stdin.flush()
        return self._running.stdout.readline()

    def close(self) -> None:
        """End the command, which must end well."""
        self._running.communicate(timeout=30)
        assert self._running.returncode == 0
        self._folder.cleanup()


class History:
    """The rule behind `specfleet replay --prometheus`, shown each scrape as it happens."""

    def __init__(self) -> None:
        self._grid = Grid(EPOCH, CONFIG.block_seconds)
        self._trial = Trial(ROUTE, CONFIG, EPOCH)
        self._samples: list[Sample] = []
        self._last = Minute(100, True)

    def read(self, router: str, started_at: float, at: float, counters: Counters) -> None:
        own = RouteTotals(counters.tokens, counters.accepted, counters.drafted, counters.requests)
        none = RouteTotals(0, 0, 0, 0)
        self._samples.append(
            Sample(
                router,
                at,
                started_at,
                {
                    (ROUTE, "speculative"): PoolCounts(own, Traffic(counters.requests)),
                    (ROUTE, "baseline"): PoolCounts(none, Traffic(counters.baseline_requests)),
                },
            )
        )

    def minute(self, at: float) -> Minute:
        some, self._samples = self._samples, []
        for blocks, hold in self._grid.fed(some, at):
            if not blocks:
                self._trial.unread(CONFIG.block_seconds)
                continue
            end = next(iter(blocks.values())).at
            recorded = blocks.get(ROUTE) or Recorded(end, CONFIG.block_seconds, None)
            verdict = self._trial.feed(recorded, hold)
            self._last = Minute(verdict.speculative_percent, verdict.pool == "speculative")
        return self._last


Line = tuple[str, tuple[tuple[str, str], ...], float, float]
"""Name, labels, value and time of a sample, as tests/unit/cli/recording.py stores them in a Prometheus server."""


def scraped(router: str, started_at: float, at: float, counters: Counters) -> Iterator[Line]:
    """What Prometheus scrapes of a router that is read."""
    target = (("namespace", "bench"), ("pod", f"days-{router}-5d8f7"), ("instance", f"{router}:9902"))
    yield "specfleet_router_uptime", target, at - started_at, at
    rows: tuple[tuple[str, int, dict[str, int]], ...] = (
        (
            DRAFT,
            counters.requests,
            {
                "decode_tokens": counters.tokens,
                "accepted": counters.accepted,
                "drafted": counters.drafted,
                "measured": counters.requests,
            },
        ),
        (BASELINE_POOL, counters.baseline_requests, {}),
    )
    for pool, requests, counts in rows:
        place = (*target, ("route", ROUTE), ("pool", pool), ("intended", pool))
        yield "specfleet_requests", (*place, ("code", "200"), ("flags", "-")), requests, at
        for name, value in counts.items():
            yield f"specfleet_{name}", place, value, at
