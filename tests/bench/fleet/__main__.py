"""`make bench-fleet`: the fleet in closed loop, twenty seeds of thirty days, others shorter, and without coupling."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from specfleet.decision.types import Pool
from tests.bench.decision.truth import TOPIC
from tests.bench.fleet import checks
from tests.bench.fleet.line import LINES
from tests.bench.fleet.run import Route, Scenario, simulated
from tests.bench.fleet.uncoupled import uncoupled
from tests.bench.machine import provenance, written

EDGE = 1.40, 1.75  # tokens per step of the route near the line, by seed
VARIANTS: dict[str, dict[str, Any]] = {
    "moving replicas": {"moving": True},
    "fixed pools": {"moving": False},
    "constant load": {"moving": False, "day": False},
    "restless content": {"moving": True, "topic": TOPIC},
}
PLAN = [  # line, variant, seeds, days
    ("measured", "moving replicas", 20, 30),
    ("measured", "fixed pools", 3, 6),
    ("measured", "constant load", 3, 6),
    ("measured", "restless content", 3, 6),
    ("truth", "moving replicas", 3, 6),
    ("truth", "fixed pools", 3, 6),
    ("truth", "constant load", 3, 6),
    ("giver", "fixed pools", 3, 6),
]
UNCOUPLED = "uncoupled"
Figures = dict[str, Any]


class Job(NamedTuple):
    """One run."""

    line: str
    variant: str
    seed: int
    seeds: int
    days: int


def routes(seed: int, seeds: int) -> tuple[Route, ...]:
    """One route that always pays, one that never does, and one for which it depends on the load."""
    place = seed * 7 % seeds / max(1, seeds - 1)  # mixed, so that the first few seeds are spread too
    edge = EDGE[0] + (EDGE[1] - EDGE[0]) * place
    return Route("code", 12.0, 2.25), Route("edge", 6.0, edge), Route("chat", 4.0, 1.25)


def run(job: Job) -> Figures:
    """The figures of one run."""
    options = VARIANTS[job.variant]
    # Without traffic in baseline nothing is measured there: the product's own default is to begin in baseline.
    initial: Pool = "baseline" if job.line == "measured" else "speculative"
    scenario = Scenario(routes(job.seed, job.seeds), job.days, job.seed, initial=initial, **options)
    line = LINES[job.line]()
    history = simulated(scenario, line)
    return {
        "seed": job.seed,
        "edgeTokensPerStep": round(scenario.routes[1].tokens_per_step, 3),
        "routes": {name: asdict(one) for name, one in checks.checked(history).items()},
        "replicaMoves": history.replica_moves,
        "fullMinutes": history.full_minutes,
        "waitedMinutes": history.waited_minutes,
        "millisecondsAToken": {
            "operated": round(checks.time_per_token(history), 3),
            "alwaysOn": round(checks.static_time_per_token(history, "speculative"), 3),
            "alwaysOff": round(checks.static_time_per_token(history, "baseline"), 3),
        },
        **({"certainty": dict(line.certainties)} if hasattr(line, "certainties") else {}),
    }


def summary(runs: Sequence[Figures]) -> Figures:
    """Over all seeds, by route: means a day, and the most of what must not be."""
    found: Figures = {"runs": len(runs)}
    for name in ("code", "edge", "chat"):
        its = [one["routes"][name] for one in runs]
        days = sum(one["days"] for one in its)
        found[name] = {
            "routeDays": days,
            "switchesPerDay": round(sum(one["switches"] for one in its) / days, 4),
            "mostIn24Hours": max(one["most_in_24_hours"] for one in its),
            "daysWithMoreThanTwo": sum(one["days_over"] for one in its),
            "shortCycles": sum(one["short_cycles"] for one in its),
            "falseSwitches": sum(one["false"] for one in its),
            "switchesInSpikes": sum(one["in_spikes"] for one in its),
            "switchesBySpikesAlone": sum(one["by_spikes"] for one in its),
            "switchOffsWithTheDay": sum(one["with_the_day"] for one in its),
            "offPercent": round(fmean(one["off_percent"] for one in its), 2),
        }
    for name in ("operated", "alwaysOn", "alwaysOff"):
        found[f"millisecondsAToken.{name}"] = round(
            fmean(one["millisecondsAToken"][name] for one in runs),
            3,
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench-fleet.json"))
    parser.add_argument("--line", nargs="+", default=[*LINES, UNCOUPLED], choices=[*LINES, UNCOUPLED])
    parser.add_argument("--variant", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    began, origin = time.monotonic(), provenance("python -m tests.bench.fleet")
    plan = [one for one in PLAN if one[0] in options.line and one[1] in options.variant]
    jobs = [Job(line, variant, seed, seeds, days) for line, variant, seeds, days in plan for seed in range(seeds)]
    done: list[tuple[Job, Figures]] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for job, one in zip(jobs, pool.map(run, jobs), strict=True):
            done.append((job, one))
            print(json.dumps([*job, one]), file=sys.stderr, flush=True)
    coupled: Figures = {}
    for line, variant, _, days in plan:
        runs = [one for job, one in done if (job.line, job.variant) == (line, variant)]
        coupled[f"line {line}, {variant}"] = {"days": days, "summary": summary(runs), "seeds": runs}
        print(f"line {line}, {variant}")
        for name, figure in summary(runs).items():
            print(f"  {name}: {figure}")
    result: Figures = {**origin, "seconds": 0, "withCoupling": coupled}
    if UNCOUPLED in options.line:
        result["withoutCoupling"] = uncoupled(options.jobs)
        print(f"without coupling: {result['withoutCoupling']}")
    result["seconds"] = round(time.monotonic() - began)
    written(result, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
