"""What exploring costs in prefill: the share of a route's prompt tokens that speculation gets while it is off. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specfleet.decision.counted import Counted
from specfleet.decision.samples import MIN_GAP_SECONDS
from specfleet.routing.counters import RouterSample

FADE_SECONDS = 3600.0
"""What was counted weighs 1/e after this time: exploring requests are few."""


@dataclass
class Prefill:
    """Of one SpecDeployment. Filled anew within an hour when it is lost."""

    counted: Counted[tuple[str, str]] = field(default_factory=lambda: Counted(MIN_GAP_SECONDS))
    taken_at: float | None = None
    tokens: dict[tuple[str, str], float] = field(default_factory=dict)
    """Prompt tokens by route and pool that answered, faded, since the route began to explore."""

    def look(self, samples: Mapping[str, RouterSample], exploring: Iterable[str], now: float) -> None:
        """Take in what routers have counted, by uid; routes that do not explore are forgotten."""
        for uid, sample in samples.items():
            found: dict[tuple[str, str], int] = {}
            for row in sample.rows:
                key = row.route, row.pool
                found[key] = found.get(key, 0) + row.prompt_tokens
            self.counted.observe(uid, sample.at, found)
        routes = set(exploring)
        elapsed = 0.0 if self.taken_at is None else max(0.0, now - self.taken_at)
        faded = math.exp(-elapsed / FADE_SECONDS)
        kept = {key: tokens * faded for key, tokens in self.tokens.items() if key[0] in routes}
        for key, grown in self.counted.take().items():
            if key[0] in routes:
                kept[key] = kept.get(key, 0.0) + grown
        self.tokens, self.taken_at = kept, now

    def share(self, route: str, pool: str) -> float | None:
        """Of the route's prompt tokens, those that this pool got; None where nothing was counted."""
        total = sum(tokens for (name, _), tokens in self.tokens.items() if name == route)
        return self.tokens.get((route, pool), 0.0) / total if total else None
