"""How the router's containers are started, reached and probed; constant for every SpecDeployment."""

from __future__ import annotations

DATA_PORT = 8080
"""Inference requests."""
READ_PORT = 9902
"""Read-only: GET /ready, /stats, /stats/prometheus and /served."""
DRAIN_PORT = 9904
"""Of the shutdown helper; only answers when the drain is over, starts nothing."""
ADMIN_PORT = 9901
"""Envoy's own admin interface, on loopback only."""
TABLE_PORT = 9903
"""Reads back the route table, on loopback only."""

BOOTSTRAP_DIR = "/etc/envoy/bootstrap"
ROUTES_DIR = "/etc/envoy/routes"
PROMPT_KEY_DIR = "/etc/envoy/prompt-key"
PROMPT_KEY_FILE = "key"

READY_PATH = "/ready"
"""200 when a route table is served and the router is not draining, on `READ_PORT`: start-up and readiness probes."""
LIVE_PATH = "/stats?filter=%5Eserver%5C.live%24"
"""200 while Envoy answers at all, on `READ_PORT`. For the liveness probe."""
SERVED_PATH = "/served"
DRAINED_PATH = "/drained"
"""On `DRAIN_PORT`: the preStop hook (httpGet) of the Envoy container; answers when Envoy may be ended."""

DRAIN_SECONDS = 20
"""How long Envoy goes on accepting while it asks clients to reconnect; an endpoint leaves Services in less."""
DRAIN_LIMIT_SECONDS = 600
"""How long the helper waits for requests in flight before it ends Envoy."""
GRACE_SECONDS = DRAIN_LIMIT_SECONDS + 30
"""terminationGracePeriodSeconds of the router pod."""


def envoy_args(concurrency: int) -> list[str]:
    """Arguments of the Envoy container (after the program's name), for `concurrency` worker threads.

    Hot restart is off: it wants shared memory, and a pod is replaced, not restarted in place.

    Raises:
        ValueError: fewer than one worker.
    """
    if concurrency < 1:
        raise ValueError(f"Envoy needs at least 1 worker thread, not {concurrency}")
    return [
        "-c",
        f"{BOOTSTRAP_DIR}/bootstrap.yaml",
        "--concurrency",
        str(concurrency),
        "--disable-hot-restart",
        # A field that this Envoy does not know is a table that it would serve otherwise than written.
        "--reject-unknown-dynamic-fields",
        "--drain-time-s",
        str(DRAIN_SECONDS),
        # Ten seconds, the default, is long for somebody who reads the log of an error.
        "--file-flush-interval-msec",
        "1000",
        "--log-level",
        "warning",
    ]


def drain_args() -> list[str]:
    """Arguments of the shutdown helper's container, which runs the operator image (`specfleet drain`)."""
    return ["drain", "--limit-seconds", str(DRAIN_LIMIT_SECONDS), "--port", str(DRAIN_PORT)]
