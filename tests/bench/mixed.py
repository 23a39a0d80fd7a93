"""`python -m tests.bench.mixed`: the same mixed traffic with speculation always on, always off, and by route.

Three fleets of two serving engine pods each on the whole node: two speculative ones, two of baseline, and one of each
with the operator deciding by its default block and dwell. The engines speak vLLM's API and take the step times and
acceptance that `make bench-curves` measured on the real engine, coupled to how many requests run in each. Every request
of one Poisson stream of arrivals goes to all three fleets at the same moment. Time per token is taken by the client,
first token to last; intervals are of a bootstrap over minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp

from tests.bench.machine import commit, machine
from tests.bench.on_node import concluded
from tests.node.install import REPOSITORY, apply_and_wait, cluster_ip, install_operator, operator_image, remove
from tests.node.kube import Kube, KubeError, Manifest
from tests.node.stub_fleet import DRAFT, DRAFT_TOKENS, stub_fleet, stub_image
from tests.node.traffic import Answer, Ask, ask
from tests.testbed import api

NAMESPACE = "bench"
ARMS = ("on", "off", "mix")
ROUTES = ("code", "json", "chat")
HEADER = "x-route"
MODEL = "stub"
TOKENS = (16, 160)
PREFILL_MS = 60.0
RESAMPLES = 2000
LOOK_SECONDS = 5.0


@dataclass
class Arm:
    """One fleet and what its clients saw; `minutes` by route: (milliseconds, tokens) of each stream by minute."""

    name: str
    endpoint: str
    minutes: dict[str, dict[int, list[tuple[float, int]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    requests: int = 0
    failures: list[Answer] = field(default_factory=list)

    def add(self, answer: Answer, minute: int | None) -> None:
        """Count one answer; `minute` None is before the measurement."""
        self.requests += 1
        if answer.failure is not None:
            self.failures.append(answer)
            return
        tokens = answer.content.completion_tokens if answer.content is not None else None
        if minute is not None and answer.decode_ms is not None and tokens is not None and tokens > 1:
            self.minutes[answer.route][minute].append((answer.decode_ms, tokens - 1))


def alpha_of(tokens_per_step: float) -> float:
    """Probability that the next of k drafted tokens is accepted, at which a step yields that many tokens."""
    steps = bisect_left(
        range(1001), tokens_per_step, key=lambda a: sum((a / 1000.0) ** j for j in range(DRAFT_TOKENS + 1))
    )
    return min(steps, 1000) / 1000.0


def environment(curves: dict[str, Any]) -> dict[str, str]:
    """The stub's settings from a result of `make bench-curves`."""
    steps = {arm: [[one["batch"], one["stepMs"]] for one in rows] for arm, rows in curves["arms"].items()}
    first = curves["arms"]["speculative"][0]["content"]
    rates = {f"{HEADER}={route}": alpha_of(first[route]["tokensPerStep"]) for route in ROUTES}
    return {
        "STUB_CURVES": json.dumps(steps),
        "STUB_ACCEPTANCE_OF": json.dumps(rates),
        "STUB_PREFILL_MS": str(PREFILL_MS),
    }


def fleet(arm: str, image: str, env: dict[str, str], policy: dict[str, Any]) -> Manifest:
    """One of the three. A fleet that is always on or off has idle pods of the other pool beside its two."""
    speculation = {"on": "Always", "off": "Never", "mix": "Auto"}[arm]
    routes = [
        {"name": name, "match": [{"header": {"name": HEADER, "value": name}}], "speculation": speculation}
        for name in ROUTES[:-1]
    ]
    routes.append({"name": ROUTES[-1], "speculation": speculation})
    replicas = 2 if arm == "mix" else 4
    made = stub_fleet(arm, NAMESPACE, image, routes=routes, replicas=replicas, policy=policy, env=env)
    made["spec"]["target"]["servedName"] = MODEL  # one request goes to all three
    return made


def request(draw: random.Random, route: str) -> Ask:
    """One stream of that route."""
    low, high = TOKENS
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "x" * draw.randrange(40, 400)}],
        "max_tokens": min(high, max(low, round(draw.lognormvariate(3.9, 0.6)))),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return Ask(route, body, {HEADER: route})


class Load:
    """Poisson arrivals, each sent to all arms at once. `since` is when measuring began; None before."""

    def __init__(self, arms: Sequence[Arm], rate: float, seed: int) -> None:
        self._arms = arms
        self._rate = rate
        self._draw = random.Random(seed)
        self._stopped = asyncio.Event()
        self.since: float | None = None

    async def run(self) -> None:
        """Until `stop`; returns when the last answer has come."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
            tasks: set[asyncio.Task[None]] = set()
            due = time.monotonic()
            while not self._stopped.is_set():
                due += self._draw.expovariate(self._rate)
                made = request(self._draw, self._draw.choice(ROUTES))
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                for arm in self._arms:
                    task = asyncio.create_task(self._send(session, arm, made))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)

    def stop(self) -> None:
        """No more arrivals."""
        self._stopped.set()

    async def _send(self, session: aiohttp.ClientSession, arm: Arm, made: Ask) -> None:
        since = self.since
        minute = None if since is None else int((time.monotonic() - since) // 60.0)
        arm.add(await ask(session, arm.endpoint, made), minute)


def pooled(minutes: Sequence[Sequence[tuple[float, int]]]) -> tuple[float, float]:
    """Median over streams of the time per token, and all time over all tokens; both in ms."""
    streams = [one for minute in minutes for one in minute]
    return median(ms / n for ms, n in streams), sum(ms for ms, _ in streams) / sum(n for _, n in streams)


def compared(arms: dict[str, Arm], route: str | None, draw: random.Random) -> dict[str, Any]:
    """Each arm's time per token on one route, or all of them, and the mix against the better of the other two."""
    routes = ROUTES if route is None else (route,)
    count = 1 + max(minute for arm in arms.values() for one in routes for minute in arm.minutes[one])
    by_minute = {
        name: [[s for one in routes for s in arm.minutes[one].get(m, ())] for m in range(count)]
        for name, arm in arms.items()
    }
    shown: dict[str, Any] = {}
    for name, minutes in by_minute.items():
        middle, mean = pooled(minutes)
        shown[name] = {
            "medianMsPerToken": round(middle, 2),
            "msPerToken": round(mean, 2),
            "streams": sum(len(minute) for minute in minutes),
        }
    for position, key in enumerate(("medianMsPerToken", "msPerToken")):
        ratios = []
        for _ in range(RESAMPLES):
            picked = [draw.randrange(count) for _ in range(count)]
            figures = {name: pooled([minutes[m] for m in picked])[position] for name, minutes in by_minute.items()}
            ratios.append(figures["mix"] / min(figures["on"], figures["off"]))
        ratios.sort()
        better = min(shown["on"][key], shown["off"][key])
        shown[f"mixOverBetter.{key}"] = {
            "ratio": round(shown["mix"][key] / better, 3),
            "interval95": [round(ratios[int(RESAMPLES * q)], 3) for q in (0.025, 0.975)],
        }
    return shown


def routes_of_the_mix(kube: Kube) -> list[dict[str, Any]]:
    """What status says of each route."""
    found = kube.get("specdeployment", "mix", NAMESPACE) or {}
    return list((found.get("status") or {}).get("routes", []))


def pools(kube: Kube) -> dict[str, str]:
    """Where the operator has each route of the mix."""
    return {one["name"]: one["pool"] for one in routes_of_the_mix(kube)}


def has_settled(kube: Kube) -> bool:
    """Whether every route is where it belongs, and those with speculation have it for all of their traffic."""
    routes = routes_of_the_mix(kube)
    whole = {one["name"] for one in routes if one["speculativePercent"].get("served") == 100}
    on = {name for name, pool in WANTED.items() if pool == DRAFT}
    return {one["name"]: one["pool"] for one in routes} == WANTED and whole == on


WANTED = {"code": DRAFT, "json": DRAFT, "chat": "baseline"}


async def run(kube: Kube, options: argparse.Namespace, arms: dict[str, Arm]) -> dict[str, Any]:
    """Traffic until the mix has settled, then the measurement."""
    load = Load(list(arms.values()), options.rate, options.seed)
    running = asyncio.create_task(load.run())
    begun = time.monotonic()
    while not await asyncio.to_thread(has_settled, kube):
        if broken := [f"{one.status}: {one.failure}" for arm in arms.values() for one in arm.failures]:
            raise KubeError(f"expected answers, {len(broken)} requests failed, first with {broken[0]}")
        if time.monotonic() - begun > options.settle_minutes * 60.0:
            raise KubeError(f"expected the mix to settle at {WANTED}, it is at {pools(kube)}")
        await asyncio.sleep(LOOK_SECONDS)
    settled = time.monotonic() - begun
    say(f"the mix has settled after {settled:.0f} s; measuring for {options.minutes} minutes")
    load.since = time.monotonic()
    moved: list[dict[str, str]] = []
    while time.monotonic() - load.since < options.minutes * 60.0:
        await asyncio.sleep(LOOK_SECONDS)
        now = await asyncio.to_thread(pools, kube)
        if now != WANTED and (not moved or moved[-1] != now):
            moved.append(now)
    load.stop()
    await running
    return {"settledSeconds": round(settled), "movesWhileMeasured": moved}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Set up, run, take down what was put up."""
    begun = datetime.now(UTC)
    curves = json.loads(options.curves.read_text())
    kube = Kube(api.ensure_node().kubeconfig)
    operator = operator_image()
    # Six routers and ten engine pods that hardly work: by their usual requests they do not fit two cores.
    install_operator(kube, operator, settings={"router.resources.requests.cpu": "50m"})
    if kube.get("specdeployment", "demo", "default") is not None:
        remove(kube, "demo", "default")
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # One pod could not take all routes with speculation at this load.
    policy: dict[str, Any] = {"initial": "Baseline", "breakEven": {"source": options.source}}
    if options.source == "Fixed":
        policy["breakEven"]["tokensPerStep"] = options.tokens_per_step
    image, env = stub_image(operator), environment(curves)
    try:
        arms = {}
        for name in ARMS:
            apply_and_wait(kube, fleet(name, image, env, policy), say)
            arms[name] = Arm(name, cluster_ip(kube, name, NAMESPACE))
        outcome = asyncio.run(run(kube, options, arms))
        status = (kube.get("specdeployment", "mix", NAMESPACE) or {}).get("status") or {}
    finally:
        for name in ARMS:
            remove(kube, name, NAMESPACE)
    draw = random.Random(options.seed)
    return {
        "arrivalsPerSecond": options.rate,
        "minutes": options.minutes,
        "policy": policy,
        **outcome,
        "requests": {name: arm.requests for name, arm in arms.items()},
        "failedRequests": sum(len(arm.failures) for arm in arms.values()),
        "failures": [f"{one.status}: {one.failure}" for arm in arms.values() for one in arm.failures][:20],
        "routes": {route: compared(arms, route, draw) for route in ROUTES},
        "all": compared(arms, None, draw),
        "messages": {one["name"]: one["message"] for one in status.get("routes", [])},
        "curves": str(options.curves.name),
        "date": begun.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


def say(line: str) -> None:
    """One line of progress."""
    print(f"[bench-mixed] {line}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 where a request failed or it could not be set up."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.mixed", description=__doc__)
    made.add_argument("--curves", type=Path, required=True, help="a result of make bench-curves")
    made.add_argument("--out", type=Path, default=REPOSITORY / "build" / "bench-mixed.json")
    made.add_argument("--minutes", type=int, default=20, help="measured once the mix has settled (default: 20)")
    made.add_argument("--settle-minutes", type=int, default=90, help="longest wait for that (default: 90)")
    made.add_argument("--rate", type=float, default=1.8, help="arrivals a second (default: 1.8)")
    made.add_argument("--source", choices=("Fixed", "Measured"), default="Measured", help="of the break-even line")
    made.add_argument("--tokens-per-step", default="1.50", help="the line with source Fixed (default: 1.50)")
    made.add_argument("--seed", type=int, default=1)
    options = made.parse_args(arguments)
    result = concluded(measure, options, say)
    if result is None:
        return 1
    for route, shown in [*result["routes"].items(), ("all", result["all"])]:
        figures = ", ".join(f"{arm} {shown[arm]['medianMsPerToken']}" for arm in ARMS)
        ratio = shown["mixOverBetter.medianMsPerToken"]
        say(f"{route}: median ms a token {figures}; mix over the better {ratio['ratio']} {ratio['interval95']}")
    return 1 if result["failedRequests"] else 0


if __name__ == "__main__":
    sys.exit(main())
