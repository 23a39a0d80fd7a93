"""What our filters cost: Envoy's CPU an event with and without them, in turns (`make bench-router`).

Two Envoys run side by side between the same client and the same event source: one with the router's bootstrap, one with
the same less the Lua and buffer filters and the counting loggers. Rounds go A B, B A, A B ..., so that what else the
machine does meets both; a round's figure is the CPU time of one Envoy's threads (nanoseconds, from the scheduler) over
the events that passed. `cpuMicrosPerEventAdded` is the median over the pairs; `rpsRatio` is with over without, streams
as fast as they go.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specfleet.routing import names
from tests.bench.machine import commit, processor
from tests.envoy.harness import ENGINE_PORT, LOOPBACK, Dns, Router, eventually, get, loopback_host, make_plan

EVENTS = 200
STREAMS = 64
BODY = json.dumps({"model": "stub", "stream": True, "messages": [{"role": "user", "content": "x" * 2000}]}).encode()


@dataclass(frozen=True)
class Round:
    """What one Envoy did in one round."""

    cpu_micros_per_event: float
    requests_per_second: float


class Bare(Router):
    """A router without what is ours."""

    def _write_bootstrap(self) -> None:
        super()._write_bootstrap()
        path = self.boot / "bootstrap.yaml"
        document = yaml.safe_load(path.read_text())
        for listener in document["static_resources"]["listeners"]:
            manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
            ours = (names.LUA_FILTER, names.BUFFER_FILTER)
            manager["http_filters"] = [one for one in manager["http_filters"] if one["name"] not in ours]
            for one in manager["http_filters"]:
                one["typed_config"].pop("upstream_log", None)
                one["typed_config"].pop("upstream_log_options", None)
            loggers = manager.get("access_log", [])
            manager["access_log"] = [one for one in loggers if one["name"] != "envoy.access_loggers.stats"]
        path.write_text(yaml.safe_dump(document))

    def write_files(self, found: dict[str, str]) -> None:
        """The same table, less the settings of filters that are not there."""
        table = yaml.safe_load(found["rds.yaml"])
        for host in table["resources"][0]["virtual_hosts"]:
            for part in (host, *host["routes"]):
                part.pop("typed_per_filter_config", None)
        super().write_files({**found, "rds.yaml": yaml.safe_dump(table)})


def cpu_micros(pid: int) -> float:
    """CPU time of all threads of a process so far, from the scheduler's own count in nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


async def one_stream(router: Router, events: int, pace_ms: float) -> None:
    """Send one request and read the answer to its end."""
    reader, writer = await asyncio.open_connection(LOOPBACK, router.data)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-route: code\r\n"
    head += f"content-length: {len(BODY)}\r\nx-events: {events}\r\nx-pace-ms: {pace_ms}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + BODY)
    raw = await reader.read()
    writer.close()
    if raw.count(b'"content":" token"') != events or b"[DONE]" not in raw or b'"usage"' in raw:
        raise SystemExit(f"a stream came back otherwise than sent: {raw[-300:]!r}")


async def load(router: Router, streams: int, clients: int, events: int, pace_ms: float) -> Round:
    """So many streams from so many clients."""
    left = iter(range(streams))

    async def client() -> None:
        for _ in left:
            await one_stream(router, events, pace_ms)

    if router.process is None:
        raise RuntimeError("the router is not started")
    before, start = cpu_micros(router.process.pid), time.perf_counter()
    await asyncio.gather(*[client() for _ in range(clients)])
    seconds = time.perf_counter() - start
    spent = cpu_micros(router.process.pid) - before
    return Round(spent / (streams * events), streams / seconds)


async def measure(ours: Router, bare: Router, pairs: int) -> dict[str, Any]:
    """All rounds, and what comes of them."""
    for router in (ours, bare):
        await load(router, 16, 16, EVENTS, 1.0)
    paced: list[tuple[Round, Round]] = []
    fast: list[tuple[Round, Round]] = []
    for number in range(pairs):
        order = (ours, bare) if number % 2 == 0 else (bare, ours)
        for found, clients, pace_ms in ((paced, 16, 5.0), (fast, 8, 0.0)):
            rounds = {router: await load(router, STREAMS, clients, EVENTS, pace_ms) for router in order}
            found.append((rounds[ours], rounds[bare]))
        added = paced[-1][0].cpu_micros_per_event - paced[-1][1].cpu_micros_per_event
        print(f"pair {number + 1} of {pairs}: {added:.1f} us an event added", file=sys.stderr)
    added_micros = [a.cpu_micros_per_event - b.cpu_micros_per_event for a, b in paced]
    ratios = [a.requests_per_second / b.requests_per_second for a, b in fast]
    return {
        "cpuMicrosPerEventAdded": round(statistics.median(added_micros), 2),
        "rpsRatio": round(statistics.median(ratios), 3),
        "details": {
            "pairs": pairs,
            "eventsPerRound": STREAMS * EVENTS,
            "cpuMicrosPerEventWith": round(statistics.median(a.cpu_micros_per_event for a, _ in paced), 2),
            "cpuMicrosPerEventWithout": round(statistics.median(b.cpu_micros_per_event for _, b in paced), 2),
            "cpuMicrosPerEventAddedByPair": [round(value, 2) for value in added_micros],
            "rpsRatioByPair": [round(value, 3) for value in ratios],
        },
    }


def machine() -> dict[str, Any]:
    """What it ran on, and beside what."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "loadAverage": os.getloadavg()[0],
    }


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench-router.json"))
    parser.add_argument("--pairs", type=int, default=7)
    args = parser.parse_args()
    dns, host = Dns(), loopback_host()
    dns.table = {"baseline.test": [host], "ngram.test": [host]}
    source = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("event_source.py")), host, str(ENGINE_PORT)]
    )
    with tempfile.TemporaryDirectory() as scratch:
        homes = [Path(scratch) / name for name in ("ours", "bare")]
        for home in homes:
            home.mkdir()
        routers = [kind(home, dns, make_plan()) for kind, home in zip((Router, Bare), homes, strict=True)]
        try:
            eventually("the event source answers", lambda: get(f"http://{host}:{ENGINE_PORT}/health")[0] == 200)
            for router in routers:
                router.start()
                router.await_healthy("ngram", 1)
            result = asyncio.run(measure(routers[0], routers[1], args.pairs))
            row = routers[0].row("code", "ngram", "ngram")
            if row.measured != row.finished or routers[0].sample().lua_errors:
                raise SystemExit(f"not every stream was counted: {row}")
        finally:
            for router in routers:
                router.stop()
            source.kill()
            dns.close()
    result |= {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commit": commit(), "machine": machine()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({name: result[name] for name in ("cpuMicrosPerEventAdded", "rpsRatio")}))


if __name__ == "__main__":
    main()
