"""The few things that scripts and tests ask of a cluster, by kubectl and helm with the test bed's own kubeconfig."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.testbed import api

Manifest = dict[str, Any]
Found = TypeVar("Found")


class KubeError(Exception):
    """A command failed or a condition did not come true in time. The text ends with what to look at."""


@dataclass(frozen=True)
class Kube:
    """A cluster by its kubeconfig."""

    kubeconfig: Path

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = 120.0) -> str:
        """Standard output of one kubectl command.

        Raises:
            KubeError: it ended with an error; its standard error is quoted.
        """
        return self._run([str(api.kubectl_binary()), *words], stdin, seconds)

    def helm(self, *words: str, seconds: float = 600.0) -> str:
        """Standard output of one helm command.

        Raises:
            KubeError: it ended with an error; its standard error is quoted.
        """
        return self._run([str(api.helm_binary()), *words], None, seconds)

    def get(self, kind: str, name: str, namespace: str) -> Manifest | None:
        """One object, or None where there is none."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def select(self, kind: str, namespace: str, selector: str = "") -> list[Manifest]:
        """All objects of a kind with these labels."""
        text = self.kubectl("get", kind, "-n", namespace, "-l", selector, "-o", "json")
        items: list[Manifest] = json.loads(text)["items"]
        return items

    def apply(self, manifest: Manifest) -> None:
        """Create or change one object."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def patch(self, kind: str, name: str, namespace: str, change: Manifest | list[Manifest]) -> None:
        """Change one object by a merge patch, or by a JSON patch where `change` is a list."""
        patch_type = "json" if isinstance(change, list) else "merge"
        self.kubectl("patch", kind, name, "-n", namespace, "--type", patch_type, "-p", json.dumps(change))

    def delete(self, kind: str, name: str, namespace: str, *options: str, seconds: float = 300.0) -> None:
        """Delete one object and wait until it is gone."""
        words = ["delete", kind, name, "-n", namespace, "--ignore-not-found", f"--timeout={seconds:.0f}s", *options]
        self.kubectl(*words, seconds=seconds + 10)

    def _run(self, command: list[str], stdin: str | None, seconds: float) -> str:
        shown = " ".join([Path(command[0]).name, *command[1:6]])
        try:
            ended = subprocess.run(
                [*command[:1], f"--kubeconfig={self.kubeconfig}", *command[1:]],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise KubeError(f"expected `{shown}` to end within {seconds:.0f} s, it did not") from error
        if ended.returncode != 0:
            raise KubeError(f"expected `{shown}` to succeed, it ended with {ended.returncode}: {ended.stderr.strip()}")
        return ended.stdout


def wait_for(
    what: str,
    look: Callable[[], Found | None],
    *,
    seconds: float,
    every: float = 0.5,
    say: Callable[[float], None] | None = None,
) -> Found:
    """Look until there is something, and return it.

    Args:
        what: the awaited condition, as a clause ("the pools to be ready").
        say: called about every 10 s with the seconds gone, to report progress.

    Raises:
        KubeError: nothing within `seconds`.
    """
    started = time.monotonic()
    said = started
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        now = time.monotonic()
        if now - started > seconds:
            raise KubeError(f"expected {what} within {seconds:.0f} s")
        if say is not None and now - said >= 10.0:
            said = now
            say(now - started)
        time.sleep(every)


def condition(manifest: Manifest | None, kind: str) -> Manifest | None:
    """The condition of that type in an object's status."""
    conditions = ((manifest or {}).get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def is_true(manifest: Manifest | None, kind: str = "Ready") -> bool:
    """Whether the condition holds for the object's present generation."""
    found = condition(manifest, kind)
    if manifest is None or found is None or found["status"] != "True":
        return False
    return bool(manifest["status"].get("observedGeneration") == manifest["metadata"]["generation"])


def ready_pods(pods: list[Manifest]) -> list[Manifest]:
    """Those that are ready and not on their way out."""
    return [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and (condition(pod, "Ready") or {}).get("status") == "True"
    ]


def pod_lines(pods: list[Manifest]) -> list[str]:
    """One line a pod: its phase, and for one that is not ready the kubelet's own reason."""
    return [f"{pod['metadata']['name']}: {_pod_state(pod)}" for pod in pods]


def _pod_state(pod: Manifest) -> str:
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "ending"
    if (condition(pod, "Ready") or {}).get("status") == "True":
        return "ready"
    scheduled = condition(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return f"not scheduled: {scheduled.get('message', '')}"
    for container in status.get("containerStatuses", []):
        if container.get("ready"):
            continue
        waiting = container.get("state", {}).get("waiting")
        last = container.get("lastState", {}).get("terminated")
        if waiting and waiting.get("reason") != "ContainerCreating":
            return f"{container['name']}: {waiting.get('reason')} {waiting.get('message', '')}".strip()
        if last:
            return f"{container['name']}: restarted {container['restartCount']} times, last: {last.get('reason')}"
        if container.get("state", {}).get("running"):
            return f"{container['name']}: running, not ready yet"
    return str(status.get("phase", "Pending"))
