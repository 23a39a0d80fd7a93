"""Step times of traffic that was recorded, and the break-even line that an operator would have read. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from specfleet.decision.break_even import Estimate, batch_after, break_even
from specfleet.decision.curves import STREAMS, Curves, Timing
from specfleet.decision.fading import FadingMean
from specfleet.decision.types import POOLS, Pool
from specfleet.decision.whatif import Recorded, Traffic


class Pace:
    """Both pools' curves of step times out of recorded streams, as an operator would have measured them.

    How many requests ran is the time that they took over the time that passed (Little's law), and a replica's part of
    it: `replicas` are those of baseline and of speculation, by name.
    """

    def __init__(self, draft_tokens: int, replicas: Mapping[Pool, int]) -> None:
        self._draft_tokens = draft_tokens
        self._replicas = replicas
        self._curves = Curves()
        self._loads: defaultdict[str, FadingMean] = defaultdict(FadingMean)  # requests in flight by route

    def feed(self, blocks: Mapping[str, Recorded]) -> None:
        """One block of all routes, later than all before."""
        at = max(one.at for one in blocks.values())
        seconds = max(one.seconds for one in blocks.values())
        for route in blocks.keys() | self._loads.keys():
            one = blocks.get(route)
            ran = 0.0 if one is None else (_seconds(one.speculative) + _seconds(one.baseline)) / seconds
            self._loads[route].add(ran, seconds)
        for pool in POOLS:
            us = steps = 0.0
            requests, ran = 0, 0.0
            for one in blocks.values():
                traffic = one.baseline if pool == "baseline" else one.speculative
                ran += _seconds(traffic) / seconds
                yielded = 1.0 if pool == "baseline" else one.tokens_per_step
                if yielded is not None and traffic.streams.tokens > 0:
                    us += traffic.streams.us
                    steps += traffic.streams.tokens / yielded
                    requests += traffic.requests
            batch = ran / self._replicas[pool]
            timing = {STREAMS: Timing(us, steps, requests)}
            self._curves = self._curves.with_block(pool, at, seconds, batch, timing, seconds)

    def line(self, route: str, mode: Pool, at: float) -> Estimate:
        """The break-even line of a route that the rule has in `mode`."""
        batch = self._curves.pool(mode).batch
        if mode == "baseline" and batch is not None:
            other = self._curves.speculative.batch or 0.0
            moved = self._loads[route].mean if route in self._loads else 0.0
            batch = batch_after(batch, other, moved / self._replicas["speculative"])
        return break_even(self._curves, mode, self._draft_tokens, at, batch=batch)


def _seconds(traffic: Traffic) -> float:
    return (traffic.streams.us + traffic.whole.us) / 1e6
