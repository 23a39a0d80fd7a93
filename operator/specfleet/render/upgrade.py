"""What the pods of a pool are made from, in few words, so that an upgrade can be told by what differs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.meta import content_hash

Facts = Mapping[str, str]

HASHED = "#"
"""Begins the value of what is too long to be told, or nobody's business: its hash follows."""
RELEASE = "release"
MODEL = "model"
UNSET = ""
_LONGEST = 80
# What people call it; everything else goes by its path in the spec.
_NAMES = {
    "engine.type": "engine",
    "engine.image": "image",
    "target.model": MODEL,
    "target.revision": "revision",
    "drafts.model": "draft",
    "drafts.revision": "draft revision",
    "drafts.mode": "mode",
    "drafts.tokens": "tokens",
}
PLAIN_NAMES = frozenset({RELEASE, *_NAMES.values()})
"""Names whose values are no secret, whatever they look like."""
_DRAFT = "drafts."
_DRAFTING = (MODEL, "revision", "draft", "draft revision", "mode", "tokens")
# Parts of a draft that no pod is made from.
_NOT_IN_PODS = frozenset({"drafts.name", "drafts.preflight", "drafts.allowLossy", "engine.version"})
_HIDDEN = ("engine.env", "target.source", "drafts.source", "pools.template")


def pool_facts(deployment: SpecDeployment, pool: str, release: str) -> Facts:
    """Name and value of everything that the pods of `pool` are made from; a long or private value is a hash."""
    spec = deployment.spec
    parts = {"engine": _dumped(spec.engine), "target": _dumped(spec.rendered_target)}
    pools = _dumped(spec.pools)
    parts["pools"] = {name: pools[name] for name in ("accelerator", "storage", "template") if name in pools}
    if pool != BASELINE_POOL:
        parts["drafts"] = _dumped(spec.draft)
    found = dict(_flat("", parts))
    return {RELEASE: release, **{_NAMES.get(path, path): value for path, value in found.items()}}


def difference(old: Facts, new: Facts) -> list[tuple[str, str, str]]:
    """Name, old and new value of what differs, the release and what people name first; "" is a value not given."""
    names = [RELEASE, *_NAMES.values(), *sorted(old.keys() | new.keys())]
    differing = [name for name in dict.fromkeys(names) if old.get(name, UNSET) != new.get(name, UNSET)]
    return [(name, old.get(name, UNSET), new.get(name, UNSET)) for name in differing]


def drafts_differ(old: Facts, new: Facts) -> bool:
    """Whether what was counted of drafted tokens says nothing about the new ones: another target, draft, mode or k."""
    return any(name in _DRAFTING or name.startswith(_DRAFT) for name, _, _ in difference(old, new))


def _dumped(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if path in _NOT_IN_PODS or value in (None, "", [], {}):
        return
    if path == "engine.env":
        for one in value:
            yield f"{path}.{one['name']}", _hash(one)
    elif path.startswith(_HIDDEN) or isinstance(value, list):
        yield path, _hash(value)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(f"{path}.{name}" if path else name, item)
    else:
        text = str(value)
        yield path, text if len(text) <= _LONGEST and text.isprintable() else _hash(text)


def _hash(value: Any) -> str:
    return f"{HASHED}{content_hash(json.dumps(value, sort_keys=True))}"
