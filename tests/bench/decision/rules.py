"""The rules that are compared. The shipped one is `specfleet.decision.rule.step`; the others are plain ones.

All but Argo's explore, while off, by the shipped rule's share (or they would differ by what they see).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist, variance
from typing import Protocol

from specfleet.decision.reasons import Hold
from specfleet.decision.rule import RATE_SECONDS, Block, RouteConfig, exploration_percent, start, step
from tests.bench.decision.traffic import EPOCH
from tests.bench.decision.truth import BREAK_EVEN, K

CONFIG = RouteConfig(
    initial="speculative", draft_tokens=K, break_even=BREAK_EVEN, block_seconds=60.0, dwell_seconds=600.0
)


class Rule(Protocol):
    """Takes a minute's block (None where evidence is held) and answers where the traffic of the next minute goes."""

    def minute(self, at: float, block: Block | None, hold: Hold | None) -> tuple[int, bool]:
        """Percent for speculation, and whether the route is in speculation. `block.share` is that of the minute."""


class Shipped:
    """The rule as the operator runs it."""

    def __init__(self) -> None:
        self.state = start(CONFIG, EPOCH)

    def minute(self, at: float, block: Block | None, hold: Hold | None) -> tuple[int, bool]:
        self.state, verdict = step(self.state, CONFIG, block, at, hold=hold)
        return verdict.speculative_percent, verdict.pool == "speculative"


class Plain:
    """What the plain rules have in common: minutes that are kept, and exploration while off.

    `kept` are (time, tokens, steps, requests). A subclass says whether what is kept speaks for the other pool.
    """

    minutes = 5.0

    def __init__(self) -> None:
        self.on, self.since = True, EPOCH
        self.kept: deque[tuple[float, int, int, int]] = deque()
        self._route, _ = step(start(CONFIG, EPOCH), CONFIG, None, EPOCH)  # for its exploring share
        self._requests = self._hours = 0.0  # of speculation, and hours x share, fading over an hour

    def minute(self, at: float, block: Block | None, hold: Hold | None) -> tuple[int, bool]:
        if block is not None:
            fade = math.exp(-60.0 / RATE_SECONDS)
            self._requests = fade * self._requests + block.requests
            self._hours = fade * self._hours + block.share / 60.0
            self._keep(at, block)
        if block is not None and self._other(at):
            self.on, self.since = not self.on, at
            self._switched()
        if self.on:
            return 100, True
        seen = replace(self._route, served_since=self.since, rate_requests=self._requests, rate_hours=self._hours)
        return exploration_percent(seen, CONFIG, at), False

    def _keep(self, at: float, block: Block) -> None:
        if block.tokens > 0:
            self.kept.append((at, block.tokens, max(block.tokens - block.accepted, 1), block.requests))
        while self.kept and at - self.kept[0][0] >= 60.0 * self.minutes:
            self.kept.popleft()

    def _other(self, at: float) -> bool:
        raise NotImplementedError

    def _switched(self) -> None:
        """After a switch."""

    def _past(self, low: float, high: float) -> bool:
        """Whether an interval of tokens per step lies past the line, as seen from the pool that serves."""
        return high < BREAK_EVEN if self.on else low > BREAK_EVEN


class Threshold(Plain):
    """T5m: the mean of the last five minutes against the line. With `z`, a binomial interval over tokens."""

    def __init__(self, z: float = 0.0) -> None:
        super().__init__()
        self.z = z

    def _other(self, at: float) -> bool:
        tokens, steps = sum(one[1] for one in self.kept), sum(one[2] for one in self.kept)
        if steps == 0:
            return False
        accepted = (tokens - steps) / (K * steps)
        half = self.z * math.sqrt(K * max(accepted * (1.0 - accepted), 0.0) / steps)
        return self._past(tokens / steps - half, tokens / steps + half)


class FiveInARow(Plain):
    """N5: five minutes with traffic in a row, each past the line by 5 %."""

    minutes = math.inf

    def _keep(self, at: float, block: Block) -> None:
        super()._keep(at, block)
        while len(self.kept) > 5:
            self.kept.popleft()

    def _other(self, at: float) -> bool:
        return len(self.kept) == 5 and all(_clearly(self.on, tokens / steps) for _, tokens, steps, _ in self.kept)

    def _switched(self) -> None:
        self.kept.clear()


class FiveWindows(Plain):
    """Q5: five windows in a row of 20 finished requests each, past the line by 5 %; dwell and back-off as shipped."""

    requests = 20
    dwell, longest, reset = 600.0, 5, 6 * 3600.0

    def __init__(self) -> None:
        super().__init__()
        self.backoff = -1
        self._sums = [0, 0, 0]
        self._sides: deque[bool] = deque(maxlen=5)

    def _keep(self, at: float, block: Block) -> None:
        self._sums = [self._sums[0] + block.tokens, self._sums[1] + block.accepted, self._sums[2] + block.requests]
        if self._sums[2] >= self.requests:
            tokens, accepted, _ = self._sums
            self._sides.append(_clearly(self.on, tokens / max(tokens - accepted, 1)))
            self._sums = [0, 0, 0]

    def _other(self, at: float) -> bool:
        wait = self.dwell / 2.0 if self.on else self.dwell * 2.0**self.backoff
        if len(self._sides) < 5 or not all(self._sides) or at - self.since < wait:
            return False
        if self.on:
            self.backoff = 0 if at - self.since >= self.reset else min(self.backoff + 1, self.longest)
        return True

    def _switched(self) -> None:
        self._sides.clear()
        self._sums = [0, 0, 0]


class BlockInterval(Plain):
    """BlockCI: a jackknife interval of 99.9 % over the minutes of the last hour, against the line."""

    minutes = 60.0
    least = 5

    def _other(self, at: float) -> bool:
        count = len(self.kept)
        if count < self.least:
            return False
        tokens, steps = sum(one[1] for one in self.kept), sum(one[2] for one in self.kept)
        without = [(tokens - n) / (steps - r) for _, n, r, _ in self.kept]
        error = math.sqrt((count - 1) ** 2 / count * variance(without))
        half = student(0.9995, count - 1) * error
        return self._past(tokens / steps - half, tokens / steps + half)


class Argo:
    """Analysis as Argo Rollouts does it: every five minutes; three failures in a row end speculation, and after 30
    minutes it is tried again with all of the traffic, blindly. A window without traffic says nothing.
    """

    window, failures, retry = 300.0, 3, 1800.0

    def __init__(self) -> None:
        self.on, self.since = True, EPOCH
        self._failed = 0
        self._tokens = self._steps = 0

    def minute(self, at: float, block: Block | None, hold: Hold | None) -> tuple[int, bool]:
        if not self.on:
            if at - self.since >= self.retry:
                self._turn(at)
            return (100, True) if self.on else (0, False)
        if block is not None:
            self._tokens += block.tokens
            self._steps += block.tokens - block.accepted
        if (at - self.since) % self.window == 0.0:
            if self._steps > 0:
                self._failed = self._failed + 1 if self._tokens / self._steps < BREAK_EVEN else 0
            self._tokens = self._steps = 0
            if self._failed >= self.failures:
                self._turn(at)
        return (100, True) if self.on else (0, False)

    def _turn(self, at: float) -> None:
        self.on, self.since, self._failed = not self.on, at, 0
        self._tokens = self._steps = 0


def _clearly(on: bool, tokens_per_step: float) -> bool:
    """Whether a figure speaks for the other pool with 5 % of hysteresis."""
    return tokens_per_step < 0.95 * BREAK_EVEN if on else tokens_per_step > 1.05 * BREAK_EVEN


def student(probability: float, degrees: int) -> float:
    """Quantile of Student's t by the expansion of Cornish and Fisher; within 5 % from 4 degrees on at .9995."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


RULES: dict[str, Callable[[], Rule]] = {
    "shipped": Shipped,
    "T5m": Threshold,
    "T5m+interval": lambda: Threshold(NormalDist().inv_cdf(0.975)),
    "N5": FiveInARow,
    "Argo": Argo,
    "Q5": FiveWindows,
    "BlockCI": BlockInterval,
}
