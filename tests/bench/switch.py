"""`python -m tests.bench.switch`: what a switch costs, and how long it takes from the decision to being served.

Two parts on the whole node: 20 switches with stub engines at a set pace under 32 clients with 50 streams open across
each, and 3 switches with 8 clients on real vLLM. A switch is made by editing a route's `speculation`; the clock runs
from before the edit is sent until every router serves it. A failed request is any answer but a complete 200.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes import client, config

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
from tests.node.kube import Kube, KubeError, Manifest, ready_pods
from tests.node.stub_fleet import DRAFT, stub_fleet, stub_image
from tests.node.traffic import Answer, Ask, Clients, Tally, Traffic, ask
from tests.testbed import api

NAMESPACE = "bench"
DEMO = "demo"
ROUTE = "all"
READ_PORT = 9902
POLL_SECONDS = 0.01
SERVED_LIMIT_SECONDS = 120.0
STEP_MS = 100.0
CLIENT_TOKENS = 20
STREAM_TOKENS = 100
STREAM_SECONDS = 7.0
# Mean tokens a decode step of the stub at acceptance 0.6 and k = 4: 1 + sum of 0.6^j for j = 1 to 4.
STUB_TOKENS_PER_STEP = 2.31


@dataclass
class Part:
    """What was measured with one fleet."""

    name: str
    clients: int
    seconds: list[float] = field(default_factory=list)
    open_streams: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The part's figures."""
        failures = [one for one in self.answers if one.failure is not None]
        return {
            "switches": len(self.seconds),
            "clients": self.clients,
            "requests": len(self.answers),
            "failedRequests": len(failures),
            "incompleteStreams": sum(one.incomplete for one in failures),
            "openStreamsAcrossEachSwitch": self.open_streams,
            "p50Seconds": round(percentile(self.seconds, 50), 3),
            "p95Seconds": round(percentile(self.seconds, 95), 3),
            "seconds": [round(one, 3) for one in self.seconds],
            "failures": [f"{one.status}: {one.failure}" for one in failures[:20]],
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(rank, 1) - 1]


class Switcher:
    """Edits the one route of a SpecDeployment and sees when all its routers serve the edit."""

    def __init__(self, kube: Kube, name: str) -> None:
        self._name = name
        connection = config.new_client_from_config(str(kube.kubeconfig))  # type: ignore[no-untyped-call]
        self._api = client.CustomObjectsApi(connection)
        routers = ready_pods(
            [
                pod
                for pod in pods_of(kube, name, NAMESPACE)
                if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "router"
            ]
        )
        self.addresses = [pod["status"]["podIP"] for pod in routers]
        if len(self.addresses) < 2:
            raise KubeError(f"expected two ready routers of {name}, found {len(self.addresses)}")

    def edit(self, speculation: str) -> None:
        """Write the route's `speculation`."""
        change = [{"op": "replace", "path": "/spec/routing/routes/0/speculation", "value": speculation}]
        self._api.patch_namespaced_custom_object(
            "specfleet.dev",
            "v1alpha1",
            NAMESPACE,
            "specdeployments",
            self._name,
            change,
            _content_type="application/json-patch+json",
        )

    async def switch(self, session: aiohttp.ClientSession, speculation: str) -> float:
        """Edit, and wait until every router serves it; returns the seconds between."""
        percent = 100 if speculation == "Always" else 0
        started = time.monotonic()
        await asyncio.to_thread(self.edit, speculation)
        await asyncio.gather(*(self._served(session, address, percent, started) for address in self.addresses))
        return time.monotonic() - started

    async def _served(self, session: aiohttp.ClientSession, address: str, percent: int, started: float) -> None:
        while True:
            async with session.get(f"http://{address}:{READ_PORT}/served") as response:
                served = await response.json(content_type=None)
            if served["routes"][ROUTE][DRAFT] == percent:
                return
            if time.monotonic() - started > SERVED_LIMIT_SECONDS:
                raise KubeError(
                    f"expected router {address} to serve {percent} % speculation within {SERVED_LIMIT_SECONDS:.0f} s, "
                    f"it serves {served}"
                )
            await asyncio.sleep(POLL_SECONDS)


def stub_request(draw: random.Random, count: int) -> Ask:
    """A client's request: every other one a stream, of these every other one without usage asked for."""
    body: dict[str, Any] = {
        "model": "bench",
        "messages": [{"role": "user", "content": "x" * draw.randrange(10, 400)}],
        "max_tokens": CLIENT_TOKENS,
    }
    if count % 2 == 0:
        body["stream"] = True
        if count % 4 == 0:
            body["stream_options"] = {"include_usage": True}
    return Ask(ROUTE, body)


def long_stream(speculative: bool) -> Ask:
    """A stream that lasts about `STREAM_SECONDS` in the pool where the route is now."""
    steps = STREAM_TOKENS / (STUB_TOKENS_PER_STEP if speculative else 1.0)
    body = {
        "model": "bench",
        "messages": [{"role": "user", "content": "go on"}],
        "max_tokens": STREAM_TOKENS,
        "stream": True,
    }
    return Ask(ROUTE, body, {"x-stub-step-ms": f"{STREAM_SECONDS * 1000 / steps:.0f}"})


async def stub_part(kube: Kube, switches: int, clients: int, streams: int) -> Part:
    """Switches with stub engines."""
    part = Part("stub", clients)
    endpoint = cluster_ip(kube, "bench", NAMESPACE)
    switcher = Switcher(kube, "bench")
    tally = Tally(keep=None)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as streaming,
        aiohttp.ClientSession() as reading,
        Traffic(endpoint, [Clients(clients, stub_request)], tally),
    ):
        speculative = False
        for number in range(switches):
            tasks = [asyncio.create_task(ask(streaming, endpoint, long_stream(speculative))) for _ in range(streams)]
            # They are under way, and none ends before the edit is served: checked below by their own clocks.
            await asyncio.sleep(1.5)
            speculative = not speculative
            edited = time.monotonic()
            seconds = await switcher.switch(reading, "Always" if speculative else "Never")
            served = edited + seconds
            answers = await asyncio.gather(*tasks)
            across = sum(
                one.first_byte_at is not None and one.first_byte_at < edited and one.ended_at > served
                for one in answers
            )
            part.seconds.append(seconds)
            part.open_streams.append(across)
            part.answers += answers
            say(f"switch {number + 1}/{switches}: {seconds:.3f} s, {across} streams open across it")
    part.answers += [answer for route in tally.recent.values() for answer in route]
    return part


async def real_part(kube: Kube, switches: int, clients: int) -> Part:
    """Switches with real vLLM."""
    part = Part("vLLM", clients)
    endpoint = cluster_ip(kube, "bench-vllm", NAMESPACE)
    switcher = Switcher(kube, "bench-vllm")
    tally = Tally(keep=None)

    def request(draw: random.Random, count: int) -> Ask:
        made = prompts.code(draw, count)
        made.body["model"] = "bench-vllm"
        return Ask(ROUTE, made.body)

    async with aiohttp.ClientSession() as reading, Traffic(endpoint, [Clients(clients, request)], tally) as traffic:
        for number in range(switches):
            await asyncio.sleep(15.0)
            edited = time.monotonic()
            seconds = await switcher.switch(reading, "Never" if number % 2 else "Always")
            part.seconds.append(seconds)
            say(f"vLLM switch {number + 1}/{switches}: {seconds:.3f} s, {traffic.in_flight} requests in flight")
            await asyncio.sleep(15.0)
            served = edited + seconds
            seen = tally.recent.get(ROUTE, ())
            part.open_streams.append(sum(a.stream and a.started_at < edited and a.ended_at > served for a in seen))
    part.answers += [answer for route in tally.recent.values() for answer in route]
    return part


def bench_fleet(image: str) -> Manifest:
    """Three stub pods a pool: 192 sequences, so that either pool, and either router's half, carries everything."""
    return stub_fleet(
        "bench", NAMESPACE, image, routes=[{"name": ROUTE, "speculation": "Never"}], replicas=6, step_ms=STEP_MS
    )


def vllm_fleet() -> Manifest:
    """The demo's fleet with one route."""
    manifest = example()
    manifest["metadata"] = {"name": "bench-vllm", "namespace": NAMESPACE}
    manifest["spec"]["routing"]["routes"] = [{"name": ROUTE, "speculation": "Never"}]
    return manifest


def document(parts: Sequence[Part], begun: datetime) -> dict[str, Any]:
    """The result: totals over all parts, then each part."""
    seconds = [one for part in parts for one in part.seconds]
    figures = [part.document() for part in parts]
    return {
        "switches": len(seconds),
        "failedRequests": sum(one["failedRequests"] for one in figures),
        "incompleteStreams": sum(one["incompleteStreams"] for one in figures),
        "p50Seconds": round(percentile(seconds, 50), 3),
        "p95Seconds": round(percentile(seconds, 95), 3),
        "parts": {part.name: figure for part, figure in zip(parts, figures, strict=True)},
        "date": begun.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


def say(line: str) -> None:
    """One line of progress."""
    print(f"[bench-switch] {line}", file=sys.stderr, flush=True)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Set up, run the parts, take down what was put up."""
    begun = datetime.now(UTC)
    kube = Kube(api.ensure_node().kubeconfig)
    operator = operator_image()
    install_operator(kube, operator)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    parts = []
    if options.switches:
        say("a fleet of stub engines")
        try:
            apply_and_wait(kube, bench_fleet(stub_image(operator)), say)
            parts.append(asyncio.run(stub_part(kube, options.switches, options.clients, options.streams)))
        finally:
            remove(kube, "bench", NAMESPACE)
    if options.vllm_switches:
        say("a fleet of real vLLM")
        manifest = vllm_fleet()
        if kube.get("specdeployment", DEMO, "default") is not None:
            say("removing the demo's fleet: four engines do not fit into the memory of a small machine")
            remove(kube, DEMO, "default")
        try:
            apply_and_wait(kube, manifest, say)
            parts.append(asyncio.run(real_part(kube, options.vllm_switches, options.vllm_clients)))
        finally:
            remove(kube, "bench-vllm", NAMESPACE)
    return document(parts, begun)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 where a request failed or a switch was not served."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.switch", description=__doc__)
    made.add_argument("--out", type=Path, default=REPOSITORY / "build" / "bench-switch.json")
    made.add_argument("--switches", type=int, default=20, help="with stub engines (default: 20)")
    made.add_argument("--clients", type=int, default=32, help="of the stub part (default: 32)")
    made.add_argument("--streams", type=int, default=50, help="open across each switch (default: 50)")
    made.add_argument("--vllm-switches", type=int, default=3, help="with real vLLM (default: 3)")
    made.add_argument("--vllm-clients", type=int, default=8, help="of the vLLM part (default: 8)")
    options = made.parse_args(arguments)
    result = concluded(measure, options, say)
    if result is None:
        return 1
    say(f"p50 {result['p50Seconds']} s, p95 {result['p95Seconds']} s over {result['switches']} switches; ")
    say(f"{result['failedRequests']} failed requests, {result['incompleteStreams']} incomplete streams: {options.out}")
    return 1 if result["failedRequests"] or result["incompleteStreams"] else 0


if __name__ == "__main__":
    sys.exit(main())
