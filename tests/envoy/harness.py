"""The real Envoy on loopback with the real files, stub engines as processes, and a DNS server that names them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specfleet.routing.bootstrap import Places
from specfleet.routing.counters import STATS_PATH, RouteRow, RouterSample, parse_stats
from specfleet.routing.files import bootstrap_files, routes_files
from specfleet.routing.plan import Match, PoolPlan, RoutePlan, RouterPlan
from specfleet.routing.process import envoy_args
from tests.testbed import api

LOOPBACK = "127.0.0.1"
ENGINE_PORT = 8000
ROOT = Path(__file__).resolve().parents[2]
_hosts = itertools.count(2)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def loopback_host() -> str:
    """A loopback address of this process's own."""
    pid = os.getpid()
    return f"127.{10 + pid % 200}.{1 + pid // 200 % 250}.{next(_hosts) % 250}"


def eventually(what: str, condition: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until `condition()` is true and return it; a failure says what was awaited."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.05)


async def eventually_async(what: str, condition: Callable[[], Any], seconds: float = 20) -> Any:
    """`eventually` for tests that have requests in flight."""
    return await asyncio.to_thread(eventually, what, condition, seconds)


def get(url: str) -> tuple[int, bytes]:
    """Status and body of one GET, (0, b"") where nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read()
    except OSError:
        return 0, b""


class Dns:
    """Answers A queries from a table that a test may change at any time; what a headless Service's DNS does."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOOPBACK, 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, peer = self._socket.recvfrom(4096)
            except OSError:
                return
            self._socket.sendto(self._answer(query), peer)

    def _answer(self, query: bytes) -> bytes:
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += query[at] + 1
        question = query[12 : at + 5]
        (kind,) = struct.unpack("!H", query[at + 1 : at + 3])
        found = self.table.get(".".join(labels))
        hosts = (found or []) if kind == 1 else []
        flags = 0x8580 if found is not None else 0x8583
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(hosts), 0, 0)
        records = [b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + socket.inet_aton(host) for host in hosts]
        return head + question + b"".join(records)


@dataclass
class Engine:
    """One stub engine in a process of its own."""

    host: str = field(default_factory=loopback_host)
    port: int = ENGINE_PORT
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Engine:
        """Start it and wait until it answers."""
        command = [sys.executable, str(ROOT / "tests/stub/engine.py"), "--host", self.host, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, *self.options])
        eventually(f"engine {self.host} answers", lambda: get(f"{self.url}/health")[0] == 200)
        return self

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://{self.host}:{self.port}"

    def seen(self) -> dict[str, Any]:
        """What arrived here."""
        found: dict[str, Any] = json.loads(get(f"{self.url}/stub/requests")[1])
        return found

    def kill(self) -> None:
        """End it as a power cut would, without a word."""
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)


class Router:
    """One Envoy with the files that the operator would mount."""

    def __init__(
        self,
        directory: Path,
        dns: Dns,
        plan: RouterPlan,
        *,
        lua: str | None = None,
        edit: Callable[[str], str] | None = None,
    ) -> None:
        self.directory = directory
        self.dns = dns
        self.lua = lua
        self.edit = edit or (lambda text: text)
        self.data, self.read, self.admin, self.table = free_ports(4)
        self.boot = directory / "bootstrap"
        self.routes = directory / "routes"
        self.boot.mkdir()
        self.routes.mkdir()
        self._writes = itertools.count(1)
        self._write_bootstrap()
        self.write_files(routes_files(plan))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"http://{LOOPBACK}:{self.data}"

    @property
    def read_url(self) -> str:
        """Where probes, the operator and Prometheus go."""
        return f"http://{LOOPBACK}:{self.read}"

    def _write_bootstrap(self) -> None:
        places = Places(
            data_host=LOOPBACK,
            data_port=self.data,
            read_host=LOOPBACK,
            read_port=self.read,
            admin_port=self.admin,
            table_port=self.table,
            bootstrap_dir=str(self.boot),
            routes_dir=str(self.routes),
        )
        found = bootstrap_files(places)
        document = yaml.safe_load(found["bootstrap.yaml"])
        document["typed_dns_resolver_config"] = {
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
                "resolvers": [{"socket_address": {"address": LOOPBACK, "port_value": self.dns.port}}],
                "dns_resolver_options": {"use_tcp_for_dns_lookups": False, "no_default_search_domain": True},
            },
        }
        (self.boot / "bootstrap.yaml").write_text(self.edit(yaml.safe_dump(document)))
        (self.boot / "filter.lua").write_text(self.lua or found["filter.lua"])

    def write_files(self, found: dict[str, str]) -> None:
        """Replace the route files as the kubelet does: a new directory, then a symlink renamed over `..data`."""
        version = self.routes / f"..{next(self._writes)}"
        version.mkdir()
        for name, text in found.items():
            (version / name).write_text(self.edit(text))
            link = self.routes / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
        fresh = self.routes / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self.routes / "..data")

    def serve(self, plan: RouterPlan) -> None:
        """Deliver a plan and wait until it is served."""
        self.write_files(routes_files(plan))
        eventually(f"version {plan.version} served", lambda: self.served().get("version") == plan.version)

    def start(self, *, ready: bool = True) -> Router:
        """Start Envoy; by default wait until it serves its table."""
        # The pod's own arguments, with other places, and shorter waits for the test that reads the log or drains.
        changed = {"-c": str(self.boot / "bootstrap.yaml"), "--drain-time-s": "2", "--file-flush-interval-msec": "50"}
        given = envoy_args(concurrency=1)
        arguments = [changed.get(before, word) for before, word in zip(["", *given], given, strict=False)]
        command = [str(api.envoy_binary()), *arguments]
        self.process = subprocess.Popen(
            command, stdout=(self.directory / "access.log").open("ab"), stderr=(self.directory / "envoy.log").open("ab")
        )
        if ready:
            eventually("router ready", lambda: get(f"{self.read_url}/ready")[0] == 200)
        return self

    def stop(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    def served(self) -> dict[str, Any]:
        """What GET /served says, {} where there is no answer yet."""
        status, body = get(f"{self.read_url}/served")
        return json.loads(body) if status == 200 else {}

    def sample(self) -> RouterSample:
        """The counters as they are now."""
        status, body = get(self.read_url + STATS_PATH)
        assert status == 200, f"/stats answered {status}"
        return parse_stats(body, time.time())

    def settled(self) -> RouterSample:
        """The counters once no request is open: a client has its answer before Envoy has counted it."""
        eventually("every request to be over", lambda: self.admin_stat("http.router.downstream_rq_active") == 0)
        return self.sample()

    def row(self, route: str, pool: str, intended: str, *, under_load: bool = False) -> RouteRow:
        """The counters of one row, settled if not `under_load`; zero where it does not exist."""
        for row in (self.sample() if under_load else self.settled()).rows:
            if (row.route, row.pool, row.intended) == (route, pool, intended):
                return row
        return RouteRow(route, pool, intended)

    def total(self, counter: str, **labels: str) -> int:
        """A settled counter, summed over the rows with these labels."""
        rows = self.settled().rows
        return sum(
            getattr(row, counter) for row in rows if all(getattr(row, key) == value for key, value in labels.items())
        )

    def log(self) -> list[dict[str, Any]]:
        """The access log so far; Envoy writes it in blocks."""
        whole, _, _ = (self.directory / "access.log").read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def line(self, request_id: str) -> dict[str, Any]:
        """The access log's line on one request."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.log() if line["requestId"] == request_id), None)

        line: dict[str, Any] = eventually(f"a log line on {request_id}", found)
        return line

    def admin_stat(self, name: str) -> int:
        """One of Envoy's own counters."""
        body = get(f"http://{LOOPBACK}:{self.admin}/stats?format=json&filter=^{name}$")[1]
        return sum(int(entry["value"]) for entry in json.loads(body)["stats"] if entry.get("name") == name)

    def healthy(self, pool: str) -> int:
        """How many hosts of a pool Envoy would send a request to."""
        return self.admin_stat(f"cluster.hosts-{pool}.membership_healthy")

    def await_healthy(self, pool: str, count: int) -> None:
        """Wait until Envoy would send to exactly this many hosts of a pool."""
        eventually(f"{count} healthy hosts in {pool}", lambda: self.healthy(pool) == count, seconds=30)


@dataclass
class Bed:
    """A router between two pools of stub engines."""

    router: Router
    dns: Dns
    baseline: list[Engine]
    speculative: list[Engine]
    plan: RouterPlan

    @property
    def engines(self) -> list[Engine]:
        """All of them."""
        return [*self.baseline, *self.speculative]


CODE = RoutePlan("code", (Match(header=("x-route", "code")), Match(model="assistant-code")), 100)
JSON = RoutePlan("json", (Match(response_format=("json_object", "json_schema")), Match(tools=True)), 100)
PINNED = RoutePlan("pinned", (Match(header=("x-route", "pinned")),), 0, never_speculative=True)
CHAT = RoutePlan("chat", (), 0)


def make_plan(
    version: str = "v1", *, routes: tuple[RoutePlan, ...] = (CODE, JSON, PINNED, CHAT), **changes: Any
) -> RouterPlan:
    """A plan for the pools `baseline` and `ngram`."""
    max_requests = changes.pop("max_requests", 1000)
    values: dict[str, Any] = {
        "deployment": "assistant",
        "namespace": "serving",
        "version": version,
        "baseline": PoolPlan("baseline", "baseline.test", ENGINE_PORT, "/health", max_requests),
        "speculative": PoolPlan("ngram", "ngram.test", ENGINE_PORT, "/health", max_requests),
        "routes": routes,
        "served_name": "stub",
        "refused_fields": ("min_p", "logit_bias"),
        "max_request_bytes": 1 << 20,
        "tenant_header": "x-tenant",
    }
    return RouterPlan(**{**values, **changes})


@contextmanager
def bed(
    directory: Path,
    plan: RouterPlan | None = None,
    *,
    baseline: int = 1,
    speculative: int = 1,
    options: tuple[str, ...] = (),
    lua: str | None = None,
    edit: Callable[[str], str] | None = None,
) -> Iterator[Bed]:
    """A running bed, taken down at the end; `edit` changes the router's files: limits that a test can wait for."""
    plan = plan or make_plan()
    dns = Dns()
    base = [Engine(options=options) for _ in range(baseline)]
    spec = [Engine(options=("--draft-tokens", "4", *options)) for _ in range(speculative)]
    dns.table = {"baseline.test": [one.host for one in base], "ngram.test": [one.host for one in spec]}
    router = Router(directory, dns, plan, lua=lua, edit=edit)
    try:
        for engine in [*base, *spec]:
            engine.start()
        router.start()
        for pool, count in (("baseline", baseline), ("ngram", speculative)):
            router.await_healthy(pool, count)
        yield Bed(router, dns, base, spec, plan)
    finally:
        router.stop()
        for engine in [*base, *spec]:
            engine.kill()
        dns.close()
