"""`make bench-decision`: all rules on ten seeds that no parameter was chosen on; tables, JSON and a picture."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.bench.decision import plot
from tests.bench.decision.drive import Decider, Operated, driven
from tests.bench.decision.rules import RULES
from tests.bench.decision.score import Day, Days, difference, scored, summary
from tests.bench.decision.through_replay import History, Lines
from tests.bench.decision.traffic import Cell, drawn
from tests.bench.decision.truth import BREAK_EVEN, RATES, TRUTH
from tests.bench.machine import provenance, written

SEEDS = list(range(30, 40))
SPANS = {"all": tuple(RATES), "low": ("low",), "mid": ("mid",), "high": ("high",), "midAndHigh": ("mid", "high")}
REPLAYS: dict[str, Callable[[], Decider]] = {
    "replay, lines": lambda: Operated(Lines()),
    "replay, history": History,
}


def cell_days(job: tuple[Cell, Sequence[str]]) -> tuple[Cell, dict[str, Day]]:
    """One route-day under each of the deciders, on the same traffic."""
    cell, names = job
    traffic = drawn(cell)
    days = {}
    for name in names:
        decider = REPLAYS[name]() if name in REPLAYS else Operated(RULES[name]())
        minutes = driven(traffic, decider)
        days[name] = scored(cell[0], traffic.truths, traffic.expected, minutes)
    return cell, days


def simulated(seeds: Sequence[int], rules: Sequence[str], jobs: int) -> dict[str, Days]:
    """All cells under all rules, by rule."""
    # The heavy cells first, so that the processes end together.
    cells = [(t, rate, seed) for rate in reversed(RATES) for t in TRUTH for seed in seeds]
    with ProcessPoolExecutor(jobs) as pool:
        done = dict(pool.map(cell_days, [(cell, rules) for cell in cells], chunksize=1))
    return {name: {cell: done[cell][name] for cell in sorted(done)} for name in rules}


def report(by_rule: dict[str, Days]) -> dict[str, object]:
    """All figures, as data. The first rule is the one that the others are held against."""
    first, *others = by_rule
    rules: dict[str, object] = {}
    for name, days in by_rule.items():
        rules[name] = {
            **{span: summary(_of(days, rates)) for span, rates in SPANS.items()},
            "cells": {
                f"{t}/{rate}": summary({c: day for c, day in days.items() if c[:2] == (t, rate)})
                for t in TRUTH
                for rate in RATES
            },
        }
    pairs = {
        name: {
            "totalPercent": {
                span: difference(_of(by_rule[first], rates), _of(by_rule[name], rates)) for span, rates in SPANS.items()
            },
            "daysWithTheSameSwitches": same_switches(by_rule[first], by_rule[name]),
        }
        for name in others
    }
    return {
        "rules": {name: one for name, one in rules.items() if name not in REPLAYS},
        "throughReplay": {name: one for name, one in rules.items() if name in REPLAYS},
        "differenceOfTotal": {"from": first, "less": pairs},
    }


def same_switches(one: Days, other: Days) -> int:
    """Days with the same switches in the same minutes."""
    return sum(day.moves == other[cell].moves for cell, day in one.items())


def _of(days: Days, rates: Sequence[str]) -> Days:
    return {cell: day for cell, day in days.items() if cell[1] in rates}


def printed(by_rule: dict[str, Days]) -> None:
    """The tables, for people."""
    print("trajectory  traffic  " + "  ".join(f"{name:>26}" for name in by_rule))
    print("                     " + "  ".join(f"{'false/sw/delay/wrong%/tot%':>26}" for _ in by_rule))
    for trajectory in TRUTH:
        for rate in RATES:
            cells = []
            for days in by_rule.values():
                shown = summary({c: d for c, d in days.items() if c[:2] == (trajectory, rate)})
                cells.append(f"{_figures(shown):>26}")
            print(f"{trajectory:11} {rate:8} " + "  ".join(cells))
    for span, rates in SPANS.items():
        for name, days in by_rule.items():
            shown = summary(_of(days, rates))
            total, false = shown["totalPercent"], shown["falseSwitchesPerDay"]
            print(f"{span:11} {name:15} total % {_mean(total)}  false a day {_mean(false)}  {_figures(shown)}")


def _mean(figure: object) -> str:
    assert isinstance(figure, dict)
    low, high = figure["interval95"]
    return f"{figure['mean']:.3f} [{low:.3f}, {high:.3f}]"


def _figures(shown: dict[str, object]) -> str:
    def mean(name: str) -> float:
        value = shown[name]
        assert isinstance(value, dict)
        return float(value["mean"])

    delay = shown.get("medianDelayMinutes")
    parts = [f"{mean('falseSwitchesPerDay'):.2f}", f"{mean('switchesPerDay'):.1f}"]
    parts += ["-" if delay is None else f"{delay:.0f}"]
    return " / ".join([*parts, f"{mean('wrongPercent'):.1f}", f"{mean('totalPercent'):.2f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the tables, write the JSON result and the picture beside it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench-decision.json"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--rules", nargs="+", default=[*RULES, *REPLAYS], choices=[*RULES, *REPLAYS])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    origin = provenance(f"python -m tests.bench.decision --seeds {' '.join(map(str, options.seeds))}")
    by_rule = simulated(options.seeds, options.rules, options.jobs)
    printed(by_rule)
    result = {
        **origin,
        "seconds": round(time.monotonic() - began),
        "seeds": options.seeds,
        "breakEven": BREAK_EVEN,
        **report(by_rule),
    }
    written(result, options.out)
    plot.drawn(result, options.out.with_suffix(".svg"))
    print(f"{options.out} and {options.out.with_suffix('.svg')} written after {result['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
