"""The result as a picture: false switches and loss by rule and rate of traffic, and the shipped rule by trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from tests.bench.decision.truth import RATES, TRUTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {"low": ".02 requests/s", "mid": ".5 requests/s", "high": "5 requests/s"}


def drawn(result: dict[str, Any], file: Path) -> None:
    """Write the SVG; the same result gives the same file."""
    figure = Figure(figsize=(11.0, 10.5), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1)
    rules = list(result["rules"])
    by_rule = {name: result["rules"][name] for name in rules}
    _bars(top, rules, {rate: [by_rule[name][rate]["totalPercent"] for name in rules] for rate in RATES})
    top.set_ylabel("GPU time lost to the oracle, %")
    false = {rate: [by_rule[name][rate]["falseSwitchesPerDay"] for name in rules] for rate in RATES}
    _bars(middle, rules, false)
    middle.set_yscale("symlog", linthresh=0.1)
    middle.set_ylabel("false switches a day")
    first = by_rule[rules[0]]["cells"]
    cells = {rate: [first[f"{one}/{rate}"]["totalPercent"] for one in TRUTH] for rate in RATES}
    _bars(bottom, list(TRUTH), cells)
    bottom.set_ylabel(f"{rules[0]}: GPU time lost, %")
    top.set_title(f"{len(result['seeds'])} days a cell, 95 % intervals over route-days; {result['date']}", loc="left")
    top.legend(fontsize=8)
    with matplotlib.rc_context({"svg.hashsalt": "specfleet", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})


def _bars(axes: Axes, names: list[str], groups: dict[str, list[dict[str, Any]]]) -> None:
    """One group of bars a name, one bar a rate of traffic."""
    width = 0.8 / len(groups)
    for number, (rate, figures) in enumerate(groups.items()):
        means = np.array([one["mean"] for one in figures])
        ends = np.array([one["interval95"] for one in figures]).T
        places = np.arange(len(names)) + (number - (len(groups) - 1) / 2.0) * width
        errors = np.maximum(np.stack([means - ends[0], ends[1] - means]), 0.0)
        axes.bar(places, means, width, yerr=errors, error_kw={"linewidth": 0.8}, label=LABELS[rate])
    axes.set_xticks(np.arange(len(names)), names)
    axes.grid(axis="y", linewidth=0.3)
