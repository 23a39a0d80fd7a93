"""The Lease: does a replica lead, and is it one of the operator's own of today?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from specfleet.doctor.facts import CannotTell, Facts, Get, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error, warning
from specfleet.doctor.installed import CONTAINER, Installed, operators
from specfleet.doctor.rights import LEASE

# Renewed every 2 s and free after 10 s; the rest is for a hand-over and for clocks that differ.
STALE = timedelta(seconds=30)


def check(facts: Facts) -> Iterator[Item]:
    """Each operator that has a ready pod."""
    for one in operators(facts):
        if not one.ready:
            yield Seen(f"{one.about} has no ready pod, so none that could lead")
            continue
        yield _lease(facts, one)


def _lease(facts: Facts, one: Installed) -> Item:
    about = f"Lease {one.namespace}/{LEASE}"
    logs = f"kubectl logs -n {one.namespace} deployment/{one.name}"
    query = Get(f"/apis/coordination.k8s.io/v1/namespaces/{one.namespace}/leases/{LEASE}")
    try:
        body = facts.get(query.path)
    except CannotTell as why:
        return NotChecked(str(why))
    if body is None:
        return error(about, "there is none, though the operator has ready pods",
                     "a Lease that one of them holds: nothing is decided or repaired", logs)  # fmt: skip
    spec = body.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    renewed = _time(spec.get("renewTime"))
    age = None if renewed is None else facts.read_at(query) - renewed
    if not holder or age is None or age > STALE:
        since = "never" if age is None else f"{int(age.total_seconds())} s ago"
        by = f" by {holder}" if holder else ", then given back"
        return error(about, f"no replica leads: it was renewed last {since}{by}",
                     "a renewal every 2 s: nothing is decided or repaired", logs)  # fmt: skip
    return _holder(facts, one, about, holder)


def _holder(facts: Facts, one: Installed, about: str, holder: str) -> Item:
    """Who leads: the identity is the pod's name, an underscore and a suffix."""
    pods = facts.listed(one.pods.path, one.pods.labels)
    name = holder.rpartition("_")[0] or holder
    leading = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
    if leading is None:
        return warning(
            about,
            f"it is held by {holder}, which is no pod of {one.about}",
            f"one of {', '.join(sorted(str(pod['metadata']['name']) for pod in pods)) or 'its pods'}",
            "end the operator that runs elsewhere (a specfleet run on somebody's machine, or another Deployment in "
            f"{one.namespace}); a pod that was deleted loses the Lease within 15 s",
        )
    image = _image(leading)
    if image and one.image and image != one.image:
        return warning(
            about,
            f"it is held by {name}, which runs {image}; {one.about} is to run {one.image}",
            "a leader of the new image: the roll-out has not ended",
            f"kubectl rollout status deployment/{one.name} -n {one.namespace}",
        )
    return Seen(f"{name} leads in {one.namespace}")


def _image(pod: Manifest) -> str:
    for container in pod["spec"].get("containers") or ():
        if container.get("name") == CONTAINER:
            return str(container.get("image") or "")
    return ""


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
