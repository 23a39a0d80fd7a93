"""`specfleet run` with settings that cannot be used: one sentence, at the probes too where it runs in a pod."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("specfleet")


def started(settings: str, folder: Path, *, pod: str = "", port: int = 0) -> subprocess.Popen[str]:
    """The process, with these settings."""
    file = folder / "settings.yaml"
    file.write_text(settings)
    command = [str(PROGRAM), "run", "--settings", str(file), "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "POD_NAME": pod, "KUBECONFIG": "/nonexistent"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def probe(port: int, path: str) -> tuple[int, str]:
    """Status and body of a probe; waits until somebody answers."""
    deadline = time.monotonic() + 30.0
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("prometheus: {url: prometheus:9090}", "prometheus.url: expected a base URL"),
        ("routerImages: x", "router_images is no setting"),
        (
            "prometheus: {url: 'http://prometheus:9090', bearerTokenFile: /no/such/token}",
            "prometheus.bearer_token_file: expected a file at /no/such/token that can be read",
        ),
    ],
)
def test_wrong_settings_end_it_with_one_sentence(tmp_path: Path, settings: str, words: str) -> None:
    process = started(settings, tmp_path)
    _, said = process.communicate(timeout=60)

    assert process.returncode == 2
    assert said.startswith("specfleet run: settings")
    assert words in said
    assert said.count("\n") == 1


def test_in_a_pod_the_probes_say_it_too(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    process = started("podMonitor: {enabled: perhaps}", tmp_path, pod="specfleet-0", port=port)
    try:
        answers = [probe(port, path) for path in ("/healthz", "/readyz")]
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)

    for status, body in answers:
        assert status == 503
        assert "pod_monitor.enabled: expected auto, true or false, found 'perhaps'" in body
    assert process.returncode == 2
    assert "pod_monitor.enabled: expected auto, true or false" in said
