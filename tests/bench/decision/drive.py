"""Closes the loop: what a rule answers decides which requests it sees in the next minute."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from specfleet.decision.rule import start
from specfleet.decision.samples import Ledger, RouteTotals
from specfleet.handlers.decide import blocks
from tests.bench.decision.rules import CONFIG, Rule
from tests.bench.decision.traffic import EPOCH, READ_SECONDS, ROUTERS, Counters, Readings, Traffic
from tests.bench.decision.truth import MINUTES

ROUTE = "route"


class Minute(NamedTuple):
    """Where the traffic of one minute went."""

    percent: int
    on: bool


class Decider(Protocol):
    """Reads routers as they are, and decides every minute."""

    def read(self, router: str, started_at: float, at: float, counters: Counters) -> None:
        """One reading of one router."""

    def minute(self, at: float) -> Minute:
        """The minute that begins at `at`."""


class Operated:
    """The operator's own data rules (`Ledger`, `blocks`) before a rule."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._ledger = Ledger(CONFIG.block_seconds, EPOCH)
        self._route = start(CONFIG, EPOCH)

    def read(self, router: str, started_at: float, at: float, counters: Counters) -> None:
        totals = RouteTotals(counters.tokens, counters.accepted, counters.drafted, counters.requests)
        self._ledger.observe(router, started_at, at, {ROUTE: totals})

    def minute(self, at: float) -> Minute:
        increments = self._ledger.take(at).increments
        hold = self._ledger.hold(at, [f"router-{router}" for router in range(ROUTERS)])
        news = blocks(increments, {ROUTE: self._route}, at, CONFIG.block_seconds)
        percent, on = self._rule.minute(at, None if hold is not None else news.get(ROUTE), hold)
        if percent != self._route.percent:
            self._route = replace(self._route, percent=percent)
        return Minute(percent, on)


def driven(traffic: Traffic, decider: Decider) -> list[Minute]:
    """The day under a decider, minute by minute. It begins in speculation."""
    readings, now = Readings(traffic), Minute(100, True)
    minutes: list[Minute] = []
    for read in range(2 * MINUTES + 1):
        for router, started_at, at, counters in readings.read(read, now.percent / 100.0):
            decider.read(router, started_at, at, counters)
        if read and read % 2 == 0:
            minutes.append(now)
            now = decider.minute(EPOCH + READ_SECONDS * read)
    return minutes
