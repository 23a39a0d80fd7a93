"""What rendered engines count, by route or for all routes together, and what keeps it from being decided by. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specfleet.api.conditions import Reason
from specfleet.decision.reasons import Hold
from specfleet.decision.samples import Ledger, RouteTotals
from specfleet.engines.counting import EngineCounting
from specfleet.handlers.conditions import Said
from specfleet.handlers.decide import ALL_ROUTES
from specfleet.handlers.external import TOGETHER
from specfleet.handlers.starts import Starts
from specfleet.metrics.engine import EngineReading

SUPPRESSED_TOKENS = 1000
"""Decode tokens without a single draft after which an engine is taken to draft no more."""


@dataclass
class EngineCounts:
    """What the engines of one speculative pool count.

    Attributes:
        expected: uids of the pool's ready pods.
        readings: the last page of each, by uid.
        troubles: why a page could not be read, by pod name.
        starts: when the engines' processes began.
        drafting: the last page of each on which drafts had moved, by uid.
        reading: the round of readings under way.
    """

    how: EngineCounting
    expected: tuple[str, ...] = ()
    readings: dict[str, EngineReading] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    starts: Starts = field(default_factory=Starts)
    drafting: dict[str, EngineReading] = field(default_factory=dict)
    reading: asyncio.Task[None] | None = None

    @property
    def counts_nothing(self) -> bool:
        """Whether every page that was read lacks what acceptance could be told by."""
        return self.how.silent or (bool(self.readings) and all(one.totals(1) is None for one in self.readings.values()))

    @property
    def suppressed(self) -> str | None:
        """That no engine drafts any more, and why that may be; None where one does, or it cannot be told."""
        still = self._undrafted
        if self.how.suppressed is None or not still or set(still) != set(self.readings):
            return None
        return f"{self._told(still)}: {self.how.suppressed}."

    @property
    def _undrafted(self) -> dict[str, int]:
        """Decode tokens without a draft of the pods that draft no more, by uid."""
        grown = {
            uid: one.decode_tokens - self.drafting[uid].decode_tokens
            for uid, one in self.readings.items()
            if uid in self.drafting and one.speculative
        }
        return {uid: tokens for uid, tokens in grown.items() if tokens >= SUPPRESSED_TOKENS}

    @staticmethod
    def _told(still: Mapping[str, int]) -> str:
        pods = "1 engine pod has" if len(still) == 1 else f"{len(still)} engine pods have"
        return f"{pods} drafted nothing for the last {sum(still.values())} tokens"

    @property
    def together(self) -> bool:
        """Whether there is one count for all routes."""
        return self.how.label is None

    def hold(self, ledger: Ledger, now: float) -> Hold | None:
        """Why the engines' counters cannot be decided by, if so."""
        return ledger.hold(now, self.expected)

    def said(self, hold: Hold | None) -> Said:
        """Condition MetricsAvailable."""
        held = "the last decision holds"
        if self.counts_nothing:
            return Said("False", Reason.ENGINE_COUNTS_NOTHING, f"{self.how.lacks}; {held}.")
        if hold is None:
            return Said("True", Reason.ENGINE_COUNTERS_READ, self._read)
        if self.troubles:
            name, trouble = next(iter(sorted(self.troubles.items())))
            return Said("False", Reason.ENGINE_METRICS_UNREADABLE, f"Pod {name}: {trouble}; {held}.")
        if hold is Hold.INSUFFICIENT_COVERAGE:
            return Said(
                "False", Reason.INSUFFICIENT_COVERAGE, f"Fewer than half of the engine pods have been read; {held}."
            )
        return Said("Unknown", Reason.NO_DATA_YET, "The engines' counters have yet to be read.")

    @property
    def _read(self) -> str:
        if self.together:
            still = self._undrafted if self.how.suppressed is not None else {}
            told = f" {self._told(still)}: {self.how.suppressed}." if still else ""
            return f"{self.how.why}: {TOGETHER}.{told}"
        return "The engines count by route, and their counters are read."

    def take_in(self, uid: str, reading: EngineReading, ledger: Ledger, routes: Iterable[str], tokens: int) -> None:
        """One page of the pod `uid`; `tokens` is k."""
        self.readings[uid] = reading
        last = self.drafting.get(uid)
        if last is None or reading.drafted != last.drafted or reading.decode_tokens < last.decode_tokens:
            self.drafting[uid] = reading
        totals = reading.totals(tokens)
        if totals is None:
            return
        rows = {ALL_ROUTES: totals}
        if not self.together:
            # A route that the engine has not met yet has no series: it counts from 0, not from its first figures.
            by_route = reading.route_totals(tokens) or {}
            rows = {name: by_route.get(name, RouteTotals(0, 0, 0, 0)) for name in routes}
        ledger.observe(uid, self.starts.of(uid, reading), reading.at, rows)

    def kept(self, pods: Mapping[str, str], ledger: Ledger) -> None:
        """Forget pods that are not in `pods`, uids and names of those that are ready."""
        self.expected = tuple(pods)
        for uid in set(self.readings) - set(pods):
            del self.readings[uid]
            self.drafting.pop(uid, None)
            self.starts.forget(uid)
            ledger.forget(uid)
        self.troubles = {name: text for name, text in self.troubles.items() if name in pods.values()}
