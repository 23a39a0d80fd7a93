"""What was read of a cluster. Checks ask it and stay pure: what is missing is noted, read, and asked for again.

A check runs against `Facts`. Where an answer is missing it ends with `NotYet`; the edge reads what was asked for and
the check is run again from its beginning, until nothing is missing. So a check may ask for what follows from other
answers and still be a function of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Manifest = dict[str, Any]


class NotYet(Exception):
    """An answer is missing and has been noted."""


class CannotTell(Exception):
    """An answer cannot be had; the text says why in one sentence."""


@dataclass(frozen=True)
class Right:
    """One thing that somebody may do or not. An empty namespace means the whole cluster."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        what += f".{self.group}" if self.group else ""
        what += f" {self.name}" if self.name else ""
        return f"{self.verb} {what}" + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True)
class Get:
    """One object, or any page of the API in JSON; the answer is None where there is none (404)."""

    path: str


@dataclass(frozen=True)
class Listing:
    """A collection; the answer is empty where the kind is not served. `names_only`: metadata without contents."""

    path: str
    labels: str = ""
    fields: str = ""
    names_only: bool = False


@dataclass(frozen=True)
class May:
    """Whether an account has a right; an empty account is the caller."""

    right: Right
    account: str = ""


@dataclass(frozen=True)
class Log:
    """The last lines of a container's log; of the one before the last restart with `previous`."""

    namespace: str
    pod: str
    container: str
    previous: bool


@dataclass(frozen=True)
class Page:
    """A page outside of the API server's own, asked for without credentials; the answer is a `PageAnswer`."""

    url: str


@dataclass(frozen=True)
class PageAnswer:
    """HTTP status (0: no answer), media type, and the beginning of the text, or why there is none."""

    status: int
    media_type: str
    text: str


@dataclass(frozen=True)
class Unread:
    """An answer that cannot be had."""

    why: str


Query = Get | Listing | May | Log | Page


@dataclass(frozen=True)
class Scope:
    """What the doctor looks at.

    Attributes:
        namespace: the only namespace of fleets to look at; None is all of them.
        default_namespace: where a first fleet would go: the one that was named, else the context's.
        operator_namespace: where the operator is looked for first, or would be installed.
        version: of this command.
    """

    namespace: str | None
    default_namespace: str
    operator_namespace: str
    version: str


@dataclass
class Facts:
    """Answers to queries. All methods raise `NotYet` for what was not read, `CannotTell` for what cannot be.

    `now` is the API server's time at the last answer, `times` that of each.
    """

    scope: Scope
    now: datetime
    answers: Mapping[Query, Any]
    times: Mapping[Query, datetime] = field(default_factory=dict)
    missing: set[Query] = field(default_factory=set)

    def prepare(self, *queries: Query) -> None:
        """Ask for several things at once."""
        unknown = [query for query in queries if query not in self.answers]
        self.missing.update(unknown)
        if unknown:
            raise NotYet

    def read_at(self, query: Query) -> datetime:
        """When an answer was given: reading a large cluster may take longer than a lease lasts."""
        return self.times.get(query, self.now)

    def get(self, path: str) -> Manifest | None:
        """One object, or None."""
        answer: Manifest | None = self._answer(Get(path))
        return answer

    def listed(self, path: str, labels: str = "", fields: str = "", *, names_only: bool = False) -> list[Manifest]:
        """All objects of a collection; empty where the kind is not served."""
        return list(self._answer(Listing(path, labels, fields, names_only)))

    def may(self, right: Right, account: str = "") -> bool:
        """Whether the caller, or an account, has a right."""
        return bool(self._answer(May(right, account)))

    def log(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """The last lines of a container."""
        return str(self._answer(Log(namespace, pod, container, previous)))

    def page(self, url: str) -> PageAnswer:
        """A page outside of the API."""
        answer: PageAnswer = self._answer(Page(url))
        return answer

    def _answer(self, query: Query) -> Any:
        self.prepare(query)
        answer = self.answers[query]
        if isinstance(answer, Unread):
            raise CannotTell(answer.why)
        return answer
