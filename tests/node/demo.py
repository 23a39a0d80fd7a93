"""`python -m tests.node.demo`: a real fleet on this machine, and speculation going off on the one route where it does
not pay.

Brings the test node up, builds the operator image, installs it with Helm, applies `manifests/examples/demo.yaml`, sends
code, JSON and chat traffic through the router's Service, and shows each route until chat has gone to baseline and the
other two have stayed. Leaves everything running; `--down` removes it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from tests.node import prompts
from tests.node.install import REPOSITORY, apply_and_wait, cluster_ip, install_operator, operator_image, remove
from tests.node.kube import Kube, KubeError, Manifest
from tests.node.table import Row, Screen
from tests.node.traffic import Clients, Tally, Traffic
from tests.testbed import api

EXAMPLE = REPOSITORY / "manifests" / "examples" / "demo.yaml"
DEFAULT_OUT = REPOSITORY / "build" / "demo.json"
LOOK_SECONDS = 2.0
BASELINE = "baseline"
MOVES = "chat"
STAY = ("code", "json")
ENGINE_VOLUME = "vllm"


@dataclass(frozen=True)
class Options:
    """How long the demo runs.

    Args:
        switch_seconds: the longest wait for the switch.
        stay_seconds: how long the others must stay after it.
        default_times: block and dwell are the API's defaults, not those of a short demo.
        clients: clients by route.
    """

    out: Path
    switch_seconds: float = 600.0
    stay_seconds: float = 60.0
    default_times: bool = False
    clients: Mapping[str, int] | None = None


DEFAULT_CLIENTS = {"code": 1, "json": 1, "chat": 2}
MAKERS = {"code": prompts.code, "json": prompts.json_records, "chat": prompts.chat}


class Demo:
    """One run: what was set up, and what has been seen of each route so far."""

    def __init__(self, kube: Kube, options: Options, console: Console) -> None:
        self.kube = kube
        self.options = options
        self.console = console
        self.tally = Tally()
        self.manifest = example()
        if options.default_times:
            for field in ("block", "dwell"):
                del self.manifest["spec"]["policy"][field]
        self.name: str = self.manifest["metadata"]["name"]
        self.namespace: str = self.manifest["metadata"]["namespace"]
        self.pool_since: dict[str, tuple[str, float]] = {}
        self.before: dict[str, float | None] = {}
        self.known: dict[str, dict[str, Any]] = {}

    def set_up(self) -> None:
        """Operator and SpecDeployment, ready to serve."""
        say = self._say
        say("building the operator image")
        image = operator_image()
        say(f"installing the chart with {image}")
        install_operator(self.kube, image)
        if self.kube.get("specdeployment", self.name, self.namespace) is not None:
            say("removing the SpecDeployment of an earlier demo, so that its routes start anew")
            remove(self.kube, self.name, self.namespace)
        say(f"applying {EXAMPLE.relative_to(REPOSITORY)}: two vLLM pods load the model, a minute or two on two cores")
        apply_and_wait(self.kube, self.manifest, say)

    async def run(self) -> float | None:
        """Send traffic and watch; returns the seconds from the first request to the switch, None without one."""
        endpoint = cluster_ip(self.kube, self.name, self.namespace)
        counts = self.options.clients or DEFAULT_CLIENTS
        clients = [Clients(count, MAKERS[route]) for route, count in counts.items()]
        self._say(f"sending traffic to {endpoint}: " + ", ".join(f"{n} {route}" for route, n in counts.items()))
        started = time.monotonic()
        switched: float | None = None
        with Screen(self.console, "specfleet demo") as screen:
            async with Traffic(endpoint, clients, self.tally):
                while True:
                    rows = await asyncio.to_thread(self.look)
                    gone = time.monotonic() - started
                    if switched is None and self.chat_has_moved(rows):
                        switched = gone
                    screen.show(rows, self._footer(gone, switched), now=switched == gone)
                    if self._over(gone, switched):
                        break
                    await asyncio.sleep(LOOK_SECONDS)
            screen.show(self.look(), "the last requests have been answered", now=True)
        return switched

    def look(self) -> list[Row]:
        """Each route as the object's status and the clients see it now."""
        found = self.kube.get("specdeployment", self.name, self.namespace) or {}
        routes = {one["name"]: one for one in (found.get("status") or {}).get("routes", [])}
        return [self._row(name, routes[name]) for name in MAKERS if name in routes]

    def _row(self, name: str, status: dict[str, Any]) -> Row:
        pool = status["pool"]
        at = time.monotonic()
        if name not in self.pool_since:
            self.pool_since[name] = (pool, 0.0)
        elif self.pool_since[name][0] != pool:
            self.before[name] = self.tally.ms_per_token(name, self.pool_since[name][1])
            self.pool_since[name] = (pool, at)
        known = self.known.setdefault(name, {})
        known.update({key: status[key] for key in ("acceptancePercent", "tokensPerStep") if key in status})
        per_step = known.get("tokensPerStep")
        return Row(
            route=name,
            pool=pool,
            speculative_percent=status.get("speculativePercent", {}).get("served"),
            acceptance_percent=known.get("acceptancePercent"),
            tokens_per_step=None if per_step is None else float(per_step),
            ms_per_token=self.tally.ms_per_token(name, self.pool_since[name][1]),
            requests=self.tally.requests.get(name, 0),
            message=status.get("message", ""),
        )

    def chat_has_moved(self, rows: list[Row]) -> bool:
        """Whether chat is decided for baseline and the routers serve it so (but for exploration)."""
        limit = self.manifest["spec"]["policy"].get("exploration", {}).get("maxPercent", 10)
        return any(
            row.route == MOVES
            and row.pool == BASELINE
            and row.speculative_percent is not None
            and row.speculative_percent <= limit
            for row in rows
        )

    def _over(self, gone: float, switched: float | None) -> bool:
        if switched is not None:
            return gone - switched >= self.options.stay_seconds
        return gone >= self.options.switch_seconds

    def _footer(self, gone: float, switched: float | None) -> str:
        if switched is None:
            return (
                f"{gone:.0f} s: waiting for the evidence against {MOVES}; failed requests: {len(self.tally.failures)}"
            )
        left = max(0.0, switched + self.options.stay_seconds - gone)
        return (
            f"{gone:.0f} s: {MOVES} went to baseline after {switched:.0f} s; watching the others for {left:.0f} s "
            f"more; failed requests: {len(self.tally.failures)}"
        )

    def result(self, rows: list[Row], switched: float | None, setup_seconds: float) -> dict[str, Any]:
        """The document of `build/demo.json`."""
        return {
            "routes": {
                row.route: {
                    "pool": row.pool,
                    "acceptancePercent": row.acceptance_percent,
                    "tokensPerStep": row.tokens_per_step,
                    "msPerToken": None if row.ms_per_token is None else round(row.ms_per_token, 1),
                    "requests": row.requests,
                }
                for row in rows
            },
            "failedRequests": len(self.tally.failures),
            "secondsToSwitch": None if switched is None else round(switched, 1),
            "secondsSetup": round(setup_seconds, 1),
        }

    def faults(self, rows: list[Row], switched: float | None) -> list[str]:
        """Why this run is no success; empty if it is one."""
        found = []
        if switched is None:
            found.append(f"{MOVES} did not go to baseline within {self.options.switch_seconds:.0f} s")
        pools = {row.route: row.pool for row in rows}
        if switched is not None and pools.get(MOVES) != BASELINE:
            found.append(f"{MOVES} went to baseline but did not stay there: now {pools.get(MOVES)}")
        found += [f"{route} did not stay speculative" for route in STAY if pools.get(route, BASELINE) == BASELINE]
        found += [f"a {one.route} request failed: {one.failure}" for one in self.tally.failures[:5]]
        if len(self.tally.failures) > 5:
            found.append(f"{len(self.tally.failures)} requests failed in all")
        return found

    def _say(self, line: str) -> None:
        self.console.print(f"[demo] {line}", soft_wrap=True, highlight=False, markup=False)


def example() -> Manifest:
    """The example with this machine's paths of the engine and the model."""
    manifest: Manifest = yaml.safe_load(EXAMPLE.read_text())
    engine, mounted_at = api.engine_mount()
    spec = manifest["spec"]
    spec["engine"]["image"] = api.engine_image()
    spec["target"]["source"]["hostPath"]["path"] = str(api.model_dir())
    pod = spec["pools"]["template"]["spec"]
    for volume in pod["volumes"]:
        if volume["name"] == ENGINE_VOLUME:
            volume["hostPath"]["path"] = str(engine)
    for mount in pod["containers"][0]["volumeMounts"]:
        if mount["name"] == ENGINE_VOLUME:
            mount["mountPath"] = mounted_at
    return manifest


def policy_lines(manifest: Manifest) -> list[str]:
    """The policy's parameters, and that they are a demo's."""
    policy = manifest["spec"]["policy"]
    return [
        f"policy: speculation is off where fewer than {policy['minAcceptancePercent']} % of the drafted tokens are "
        f"accepted (minAcceptancePercent: {policy['minAcceptancePercent']})",
        f"        or a decode step yields fewer than {policy['breakEven']['tokensPerStep']} tokens (breakEven: Fixed "
        f"{policy['breakEven']['tokensPerStep']}); all routes start speculative (initial: {policy['initial']})",
        f"        block {policy['block']} and dwell {policy['dwell']} make a short demo; the defaults are 60s and 10m"
        if "block" in policy
        else "        block and dwell are the defaults, 60s and 10m: a switch takes at least five minutes",
    ]


def closing_lines(demo: Demo, rows: list[Row], result: dict[str, Any]) -> list[str]:
    """The figures in words, and what to try next."""
    lines = []
    for row in rows:
        was = demo.before.get(row.route)
        change = f" (was {was:.1f} with speculation)" if was is not None and row.pool == BASELINE else ""
        shown = "-" if row.ms_per_token is None else f"{row.ms_per_token:.1f}"
        lines.append(f"{row.route}: {row.pool}, {shown} ms/token{change}, {row.requests} requests. {row.message}")
    if result["secondsToSwitch"] is not None:
        lines.append(f"{MOVES} went to baseline {result['secondsToSwitch']:.0f} s after the first request.")
    lines.append(f"failed requests: {result['failedRequests']}; set-up took {result['secondsSetup']:.0f} s")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.down:
        return subprocess.run([sys.executable, "-m", "tests.testbed", "down"], cwd=REPOSITORY, check=False).returncode
    console = Console()
    try:
        return run(options, console)
    except KeyboardInterrupt:
        console.print("[demo] stopped; what was set up is left running (make demo-down removes it)", markup=False)
        return 130


def run(options: argparse.Namespace, console: Console) -> int:
    """Set up and watch; returns the exit status."""
    started = time.monotonic()
    try:
        node = api.ensure_node()
        limits = Options(options.out, options.switch_seconds, options.stay_seconds, options.default_times)
        demo = Demo(Kube(node.kubeconfig), limits, console)
        demo.set_up()
    except (api.TestbedError, KubeError) as error:
        text = error.report() if isinstance(error, api.TestbedError) else str(error)
        console.print(f"[demo] {text}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return watch(demo, time.monotonic() - started)


def watch(demo: Demo, setup_seconds: float) -> int:
    """Traffic, figures, verdict; returns the exit status."""
    for line in policy_lines(demo.manifest):
        demo.console.print(line, soft_wrap=True, highlight=False, markup=False)
    try:
        switched = asyncio.run(demo.run())
        rows = demo.look()
    except KubeError as error:
        demo.console.print(f"[demo] {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    result = demo.result(rows, switched, setup_seconds)
    demo.options.out.parent.mkdir(parents=True, exist_ok=True)
    demo.options.out.write_text(json.dumps(result, indent=2) + "\n")
    demo.console.print()
    for line in closing_lines(demo, rows, result):
        demo.console.print(line, soft_wrap=True, highlight=False, markup=False)
    faults = demo.faults(rows, switched)
    for fault in faults:
        demo.console.print(f"[demo] FAILED: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    hint = (
        'still running; try: eval "$(python3 -m tests.testbed env)"; .venv/bin/specfleet explain demo chat'
        "   (make demo-down removes it all)"
    )
    demo.console.print(hint, soft_wrap=True, highlight=False, markup=False)
    return 1 if faults else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.node.demo", description=__doc__)
    made.add_argument("--down", action="store_true", help="remove the demo and its node")
    made.add_argument("--out", type=Path, default=DEFAULT_OUT, help="result file (default: build/demo.json)")
    made.add_argument("--switch-seconds", type=float, default=600.0, help="longest wait for the switch (default: 600)")
    made.add_argument("--stay-seconds", type=float, default=60.0, help="watch the others this long (default: 60)")
    made.add_argument("--default-times", action="store_true", help="block 60s and dwell 10m, as on a real fleet")
    return made


if __name__ == "__main__":
    sys.exit(main())
