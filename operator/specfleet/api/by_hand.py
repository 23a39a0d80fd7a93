"""A person's word about routes in an incident: an annotation that ends by itself, and is not in Git. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from specfleet.api.routing import Routing, Speculation
from specfleet.api.times import epoch, timestamp
from specfleet.api.v1alpha1 import GROUP, SpecDeploymentSpec

ANNOTATION_BY_HAND = f"{GROUP}/by-hand"
ALL = "*"
LONGEST = timedelta(days=31)
MAX_REASON = 200
_MAX_BYTES = 16384
_KEYS = frozenset({"speculation", "until", "reason"})

Word = Literal["off", "on"]
_SPECULATION: dict[Word, Speculation] = {"off": Speculation.NEVER, "on": Speculation.ALWAYS}


@dataclass(frozen=True)
class ByHand:
    """One word: the route is served without speculation (`off`) or with it (`on`) until then.

    Args:
        until: in seconds since the epoch.
    """

    word: Word
    until: float
    reason: str

    @property
    def until_text(self) -> str:
        """RFC 3339 in whole seconds."""
        return timestamp(self.until)

    def entry(self) -> dict[str, str]:
        """As it stands in the annotation."""
        return {"speculation": self.word, "until": self.until_text, "reason": self.reason}


@dataclass(frozen=True)
class Words:
    """What an annotation says: by route name, `*` for all, and what of it cannot be read."""

    of: Mapping[str, ByHand]
    problems: tuple[str, ...] = ()

    def in_force(self, routes: Iterable[str], now: float) -> dict[str, ByHand]:
        """By route, what holds now. A route's own word goes before the one for all."""
        held = {}
        for route in routes:
            for word in (self.of.get(route), self.of.get(ALL)):
                if word is not None and word.until > now:
                    held[route] = word
                    break
        return held

    def text(self) -> str | None:
        """The annotation's value; None where nothing is left to say."""
        entries = {route: word.entry() for route, word in sorted(self.of.items())}
        return json.dumps(entries) if entries else None


def words_of(annotations: Mapping[str, str] | None, routes: Iterable[str]) -> Words:
    """Read the annotation. Whatever cannot be read is left out and named: traffic must not depend on a guess."""
    text = (annotations or {}).get(ANNOTATION_BY_HAND)
    if text is None or not text.strip():
        return Words({})
    if len(text.encode()) > _MAX_BYTES:
        return Words({}, (f"expected at most {_MAX_BYTES} bytes",))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Words({}, (f"expected JSON, found {_shown(text)}",))
    if not isinstance(document, dict):
        return Words({}, (f"expected an object of route names, found {_shown(text)}",))
    known, words, problems = {*routes, ALL}, {}, []
    for route, entry in document.items():
        if route not in known:
            problems.append(f"there is no route {_shown(route)}")
            continue
        read = _read(entry)
        if isinstance(read, str):
            problems.append(f"route {route}: {read}")
        else:
            words[route] = read
    return Words(words, tuple(problems[:10]))


def applied(spec: SpecDeploymentSpec, held: Mapping[str, ByHand]) -> SpecDeploymentSpec:
    """The spec with what holds now as the routes' `speculation`. `Never` in the spec stays."""
    if not held:
        return spec
    words = obeyed(spec.routing, held)
    routes = [
        route.model_copy(update={"speculation": _SPECULATION[words[route.name].word]}) if route.name in words else route
        for route in spec.routing.routes
    ]
    return spec.model_copy(update={"routing": spec.routing.model_copy(update={"routes": routes})})


def obeyed(routing: Routing, held: Mapping[str, ByHand]) -> dict[str, ByHand]:
    """Those words that make a difference to the spec: `on` gives way to `Never`."""
    return {
        route.name: held[route.name]
        for route in routing.routes
        if route.name in held and not (held[route.name].word == "on" and route.speculation is Speculation.NEVER)
    }


def _read(entry: Any) -> ByHand | str:
    if not isinstance(entry, dict) or set(entry) - _KEYS:
        return f"expected an object with speculation, until and reason, found {_shown(json.dumps(entry))}"
    word, until, reason = entry.get("speculation"), entry.get("until"), entry.get("reason")
    if word != "off" and word != "on":
        return f"expected speculation off or on, found {_shown(json.dumps(word))}"
    if not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
        return f"expected a reason of 1 to {MAX_REASON} characters"
    if not isinstance(until, str):
        return "expected until, a time such as 2026-11-29T12:00:00Z: what is said by hand has to end"
    try:
        at = epoch(until)
    except (ValueError, OverflowError):
        return f"expected until as 2026-11-29T12:00:00Z, in UTC, found {_shown(until)}"
    return ByHand(word, at, " ".join(reason.split()))


def _shown(text: str) -> str:
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return repr(printable if len(printable) <= 60 else printable[:57] + "...")
