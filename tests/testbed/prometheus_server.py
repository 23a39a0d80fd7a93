"""A real Prometheus that scrapes given addresses, with the names and labels that the PodMonitor gives."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from specfleet.render.monitor import RELABELLED
from specfleet.routing.counters import SCRAPE_FILTER, SCRAPE_PATH
from tests.testbed import api

LOOPBACK = "127.0.0.1"
START_SECONDS = 30.0


@dataclass(frozen=True)
class Target:
    """What is scraped, and the labels that Kubernetes' service discovery would give."""

    address: str
    labels: Mapping[str, str]


@dataclass
class PrometheusServer:
    """The process. It keeps address and data over `stop` and `start`.

    Args:
        listens_on: address of this machine: loopback, or one that pods reach.
        raw: names stay as Envoy writes them.
        jobs: how often each target is scraped under another job's name.
        job: a job to scrape by instead; targets then come with the labels of service discovery, `__meta_...`.
    """

    directory: Path
    scrape_seconds: float = 1.0
    raw: bool = False
    jobs: int = 1
    job: dict[str, Any] | None = None
    listens_on: str = LOOPBACK
    port: int = field(default_factory=lambda: _free_port())
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base URL of its API."""
        return f"http://{self.listens_on}:{self.port}"

    def targets(self, targets: Iterable[Target]) -> None:
        """Scrape these from now on; a running server notices within the second."""
        groups = [{"targets": [one.address], "labels": dict(one.labels)} for one in targets]
        draft = self.directory / "targets.draft"
        draft.write_text(yaml.safe_dump(groups))
        draft.rename(self.directory / "targets.yaml")

    def start(self) -> PrometheusServer:
        """Start it and wait until it answers."""
        config = self.directory / "prometheus.yaml"
        config.write_text(yaml.safe_dump(self._config()))
        if not (self.directory / "targets.yaml").exists():
            self.targets(())
        command = [str(api.prometheus_binary()), f"--config.file={config}"]
        command += [
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={self.listens_on}:{self.port}",
        ]
        with (self.directory / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = (self.directory / "prometheus.log").read_text()[-2000:]
                raise AssertionError(f"Prometheus does not start: {said}")
            time.sleep(0.05)
        return self

    def freeze(self) -> None:
        """Let it take connections and answer none; `stop` ends it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End it; what it has recorded stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self) -> dict[str, Any]:
        every = f"{round(self.scrape_seconds * 1000)}ms"
        renamed = [
            {"source_labels": ["__name__"], "regex": regex, "target_label": "__name__", "replacement": replacement}
            for regex, replacement in RELABELLED
        ]
        files = [{"files": [str(self.directory / "targets.yaml")], "refresh_interval": "1s"}]
        if self.job is not None:
            job = {key: value for key, value in self.job.items() if key != "kubernetes_sd_configs"}
            return {
                "global": {"scrape_interval": every, "scrape_timeout": every},
                "scrape_configs": [{**job, "file_sd_configs": files}],
            }
        return {
            "global": {"scrape_interval": every, "scrape_timeout": every},
            "scrape_configs": [
                {
                    "job_name": f"routers-{number}",
                    "metrics_path": SCRAPE_PATH,
                    "params": {"filter": [SCRAPE_FILTER]},
                    "file_sd_configs": files,
                    "metric_relabel_configs": [] if self.raw else renamed,
                }
                for number in range(self.jobs)
            ],
        }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        return int(one.getsockname()[1])
