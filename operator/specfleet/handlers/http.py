"""The operator's own HTTP port: liveness, readiness and metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from specfleet.metrics.own import OperatorMetrics

Problems = Callable[[], list[str]]


def application(metrics: OperatorMetrics, unhealthy: Problems, unready: Problems) -> web.Application:
    """GET /healthz, /readyz and /metrics. A probe answers 503 with the problems, one a line."""

    async def healthz(request: web.Request) -> web.Response:
        return _probe(unhealthy())

    async def readyz(request: web.Request) -> web.Response:
        return _probe(unready())

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=metrics.page(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", page)])
    return app


def _probe(problems: list[str]) -> web.Response:
    return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")
