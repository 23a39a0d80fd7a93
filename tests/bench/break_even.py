"""`python -m tests.bench.break_even`: the operator's measured break-even line against a load run of its own.

Real vLLM on the whole node, one pod with speculation and one without, one of them idle at any time. First the operator
learns: clients on the router's route of either pool by turns, at each load. Then its curves are read from status. Then
the load run: the same clients on the pods themselves, windows of either pool by turns, each with the time of a decode
step by the clients' clock and the running requests by the engine's gauge. The line is read off the operator's curves at
that batch and held against the median over pairs of windows.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import aiohttp

from specfleet.decision.break_even import break_even
from specfleet.decision.curves import decode
from tests.bench.curves import ARMS, CONTENT, Window, one_stream, window
from tests.bench.machine import commit, machine
from tests.bench.on_node import concluded
from tests.node import prompts
from tests.node.demo import example
from tests.node.install import (
    REPOSITORY,
    apply_and_wait,
    cluster_ip,
    install_operator,
    operator_image,
    pods_of,
    remove,
)
from tests.node.kube import Kube, Manifest, wait_for
from tests.node.traffic import Ask
from tests.testbed import api

NAMESPACE = "bench"
NAME = "pace"
DRAFT = "ngram"
ROUTES = {"speculative": "on", "baseline": "off"}
BLOCK_SECONDS = 10
AGREEMENT = 0.10
ENGINE_PORT = 8000


def fleet() -> Manifest:
    """The demo's engines, a route for each pool, and a line that is measured."""
    manifest = example()
    manifest["metadata"] = {"name": NAME, "namespace": NAMESPACE}
    manifest["spec"]["routing"]["routes"] = [
        {"name": "on", "match": [{"header": {"name": "x-route", "value": "on"}}], "speculation": "Always"},
        {"name": "off", "match": [{"header": {"name": "x-route", "value": "off"}}], "speculation": "Never"},
        {"name": "auto"},
    ]
    manifest["spec"]["policy"] = {"breakEven": {"source": "Measured"}, "block": f"{BLOCK_SECONDS}s"}
    return manifest


def routed(make: prompts.Maker, route: str) -> prompts.Maker:
    """The same requests on a route of this fleet."""

    def made(draw: random.Random, count: int) -> Ask:
        asked = make(draw, count)
        body = {key: value for key, value in asked.body.items() if key != "response_format"}
        return Ask(route, {**body, "model": NAME}, {"x-route": route})

    return made


async def gauged(session: aiohttp.ClientSession, url: str, seconds: float) -> float:
    """Running requests of one engine for so long, the mean of a reading each second.

    Not to the end of the last streams: those run among fewer, and the window leaves them out.
    """
    found = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        async with session.get(url + "/metrics") as response:
            page = await response.text()
        lines = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running{")]
        found.append(sum(float(line.rpartition(" ")[2]) for line in lines))
        await asyncio.sleep(1.0)
    return fmean(found)


async def measured(
    session: aiohttp.ClientSession, arm: str, url: str, load: int, seconds: float, seed: str
) -> tuple[Window, float]:
    """One window on an engine itself, and the batch that its gauge showed."""
    gauge = asyncio.create_task(gauged(session, url, seconds))
    content = {kind: routed(make, ROUTES[arm]) for kind, make in CONTENT.items()}
    one = await window(session, arm, url, load, seconds, seed, content)
    return one, await gauge


async def run(options: argparse.Namespace, endpoint: str, engines: dict[str, str], kube: Kube) -> dict[str, Any]:
    """Learn, read the curves, run the load; the document's figures."""
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        for arm, url in engines.items():
            for kind, make in CONTENT.items():
                await one_stream(session, url, routed(make, ROUTES[arm])(random.Random(kind), 0))
        for turn in range(options.learn_windows):
            for load in options.loads:
                for arm in ARMS if turn % 2 else ARMS[::-1]:
                    content = {kind: routed(make, ROUTES[arm]) for kind, make in CONTENT.items()}
                    one = await window(session, arm, endpoint, load, options.learn_seconds, f"learn-{turn}", content)
                    # The router keeps from clients the figures that they did not ask for: steps cannot be told here.
                    progress = f"learning {turn + 1}/{options.learn_windows}, {load} clients {arm}"
                    say(f"{progress}: {one.token_ms:.1f} ms a token")
        text = await asyncio.to_thread(curves_when_written, kube)
        curves = decode(text)
        results = []
        for load in options.loads:
            pairs = []
            for number in range(options.windows):
                found = {}
                for arm in ARMS if number % 2 else ARMS[::-1]:
                    one, batch = await measured(session, arm, engines[arm], load, options.seconds, f"run-{number}")
                    found[arm] = one, batch
                    say(f"{load} clients {arm} {number + 1}/{options.windows}: {one.step_ms:.1f} ms at {batch:.2f}")
                pairs.append(found)
            results.append(compared(curves, load, pairs))
    return {"loads": results, "curves": text}


def compared(curves: Any, load: int, pairs: Sequence[dict[str, tuple[Window, float]]]) -> dict[str, Any]:
    """The line by the operator's curves and by the load run, at one load."""
    ratios = [pair["speculative"][0].step_ms / pair["baseline"][0].step_ms for pair in pairs]
    batch = fmean(batch for pair in pairs for _, batch in pair.values())
    line = break_even(curves, "speculative", 4, time.time(), batch=batch)
    run = median(ratios)
    agrees = line.tokens_per_step is not None and abs(line.tokens_per_step / run - 1.0) <= AGREEMENT
    inside = line.interval is not None and line.interval[0] <= run <= line.interval[1]
    return {
        "clients": load,
        "batch": round(batch, 3),
        "operator": {
            "tokensPerStep": line.tokens_per_step and round(line.tokens_per_step, 3),
            "interval": line.interval and [round(end, 3) for end in line.interval],
            "state": line.certainty,
        },
        "loadRun": {
            "tokensPerStep": round(run, 3),
            "windows": [round(one, 3) for one in sorted(ratios)],
            "stepMs": {arm: round(median(pair[arm][0].step_ms for pair in pairs), 2) for arm in ARMS},
            "otherCores": round(median(one.other_cores for pair in pairs for one, _ in pair.values()), 2),
        },
        "agrees": agrees or inside,
    }


def curves_when_written(kube: Kube) -> str:
    """`status.curves` with all that was measured so far: an edit has status written at once, not within minutes."""
    edited = fleet()
    edited["spec"]["policy"]["dwell"] = "11m"
    kube.apply(edited)

    def written() -> str | None:
        found = kube.get("specdeployment", NAME, NAMESPACE) or {}
        status = found.get("status") or {}
        current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
        return status.get("curves") if current else None

    return wait_for("status.curves after an edit", written, seconds=120)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Set up, run, take down what was put up."""
    begun = datetime.now(UTC)
    kube = Kube(api.ensure_node().kubeconfig)
    install_operator(kube, operator_image())
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    if kube.get("specdeployment", "demo", "default") is not None:
        remove(kube, "demo", "default")
    try:
        apply_and_wait(kube, fleet(), say)
        pods = [
            pod
            for pod in pods_of(kube, NAME, NAMESPACE)
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "engine"
        ]
        engines = {
            "baseline" if "-baseline-" in pod["metadata"]["name"] else "speculative": (
                f"http://{pod['status']['podIP']}:{ENGINE_PORT}"
            )
            for pod in pods
        }
        figures = asyncio.run(run(options, cluster_ip(kube, NAME, NAMESPACE), engines, kube))
        status = (kube.get("specdeployment", NAME, NAMESPACE) or {}).get("status") or {}
    finally:
        remove(kube, NAME, NAMESPACE)
    return {
        **figures,
        "breakEven": {one["name"]: one.get("breakEven") for one in status.get("routes", [])},
        "windows": options.windows,
        "windowSeconds": options.seconds,
        "learnWindows": options.learn_windows,
        "learnSeconds": options.learn_seconds,
        "date": begun.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


def say(line: str) -> None:
    """One line of progress."""
    print(f"[bench-break-even] {line}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 where a load disagrees or it could not be set up."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.break_even", description=__doc__)
    made.add_argument("--out", type=Path, default=REPOSITORY / "build" / "bench-break-even.json")
    made.add_argument("--loads", type=int, nargs="+", default=[1, 2, 4], help="clients (default: 1 2 4)")
    made.add_argument("--windows", type=int, default=6, help="of each pool and load (default: 6)")
    made.add_argument("--seconds", type=float, default=120.0, help="of a window (default: 120)")
    made.add_argument("--learn-windows", type=int, default=2, help="of each pool and load (default: 2)")
    made.add_argument("--learn-seconds", type=float, default=120.0, help="of each of these (default: 120)")
    options = made.parse_args(arguments)
    result = concluded(measure, options, say)
    if result is None:
        return 1
    for one in result["loads"]:
        say(f"{one['clients']} clients: operator {one['operator']}, load run {one['loadRun']['tokensPerStep']}")
    return 0 if all(one["agrees"] for one in result["loads"]) else 1


if __name__ == "__main__":
    sys.exit(main())
