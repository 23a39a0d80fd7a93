"""One level-triggered reconcile: read, validate, sample, decide, plan, commit to status, apply, read back.

Whatever triggered it, a pass computes the whole state from the SpecDeployment, from what was observed and from the
routers. The decision is committed to status, with the resourceVersion it was computed from, before anything that
follows from it is written; so a replica that has lost the lease without knowing fails at the first write, and a pass
that was cut off anywhere is finished by the next one, from the status alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from specfleet.api.base import duration
from specfleet.api.names import preflight_object
from specfleet.api.status import RouteStatus, SpecDeploymentStatus
from specfleet.api.times import timestamp
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.cluster.client import ApiClient
from specfleet.cluster.kinds import CONFIG_MAP, JOB, SPEC_DEPLOYMENT
from specfleet.handlers.by_hand import taken_in
from specfleet.handlers.carry_out import Executor
from specfleet.handlers.claims import with_claims
from specfleet.handlers.conditions import conditions, invalid, was_ready
from specfleet.handlers.counting import Counter
from specfleet.handlers.fleet import Fleet, fleet
from specfleet.handlers.gauges import show
from specfleet.handlers.guards import Guards
from specfleet.handlers.looking import Looker
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key, Observed
from specfleet.handlers.pace import follow
from specfleet.handlers.preflight import Gate, Wanted, gate
from specfleet.handlers.rendering import Checked, Renderer
from specfleet.handlers.reporting import Reporter
from specfleet.handlers.sampling import sample
from specfleet.handlers.scraped import Scraper
from specfleet.handlers.serving import poll_served, read_served
from specfleet.handlers.status import (
    counts_only,
    dump,
    figures,
    noticeable,
    parse_status,
    pools_status,
)
from specfleet.handlers.telling import Teller
from specfleet.handlers.view import View, compute, view_pool
from specfleet.metrics.direct import RouterReader
from specfleet.metrics.own import OperatorMetrics

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 600.0
COUNTS_SECONDS = 2.0
UNCONFIRMED_SECONDS = 2.0
CONNECTING_SECONDS = 1.0
RETRY_SECONDS = 15.0
Body = dict[str, Any]


class Reconciler:
    """Passes over SpecDeployments. One pass at a time for each key; the queue sees to that."""

    def __init__(
        self,
        client: ApiClient,
        observed: Observed,
        reader: RouterReader,
        renderer: Renderer,
        metrics: OperatorMetrics,
        teller: Teller,
        looker: Looker,
        scraper: Scraper,
        counter: Counter,
        guards: Guards,
        reporter: Reporter,
        mark: Callable[[Key, float], None],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._observed = observed
        self._reader = reader
        self._renderer = renderer
        self._metrics = metrics
        self._teller = teller
        self._looker = looker
        self._scraper = scraper
        self._counter = counter
        self._guards = guards
        self._reporter = reporter
        self._mark = mark
        self._clock = clock
        self._monotonic = monotonic
        self._executor = Executor(client, observed, metrics)
        self._memories: dict[Key, Memory] = {}
        self._checked: dict[Key, tuple[str, int, Checked]] = {}
        self._polls: dict[Key, asyncio.Task[None]] = {}

    async def reconcile(self, key: Key) -> float | None:
        """One pass. Returns the seconds until the next look, None where only an event can bring news.

        Raises:
            ClusterError: something could not be read or written; to be tried again.
            NotLeadingError: the process must end.
        """
        body = self._observed.deployment(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        now = self._clock()
        checked = self._check(key, body)
        if checked.spec is None or checked.errors:
            return await self._invalid(key, body, checked, now)
        spec = checked.spec
        memory = self._memory(key, body, spec, now)
        live = body.get("status") or {}
        body = memory.recalled(body)
        checked, spec, memory.by_hand = taken_in(body, checked, spec, now)
        generation, owned = int(body["metadata"]["generation"]), self._observed.owned(key)
        checked = await with_claims(self._client, key, generation, checked, memory.claims, owned, now)
        if checked.errors:
            await self._invalid(key, body, checked, now)
            return max(0.05, memory.claims.next_look - now)
        if spec.external is not None:
            spec = await self._looker.assess(key, body, spec, memory, now)
        elif memory.outside is not None:
            self._looker.forget(memory)
        memory.sourced(await self._scraper.follow(key, spec, memory.block_seconds, memory.scraped, now), now)
        self._counter.follow(spec, memory, self._observed.pods(key), now)
        self._guards.follow(spec, memory, self._observed.pods(key), now)
        compared = self._gate(key, body, checked, spec, memory, now)
        state = self._fleet(key, body, spec, compared)
        connecting = _awaits_routers(parse_status(body)) and not memory.connected(state)
        await sample(memory, state, spec, self._reader, self._metrics, now, connecting=connecting)
        # A router that is new, or new to this process, is asked before its silence could be taken for news.
        unheard = memory.unheard(state.routers, memory.served, now)
        await read_served(memory, unheard, spec.draft.name, self._reader)
        self._looker.counted(spec, memory, now)
        self._guards.look(spec, memory, state, self._observed.pods(key), now)
        follow(key, body, spec, memory, state, self._observed, now)
        view = self._view(key, body, checked, spec, memory, state, now, compared)
        if view.switches and memory.sampled_before(now):
            # Room for a switch is judged by what is in flight now, not by what was when a block was half over.
            memory.next_sample = 0.0
            await sample(memory, state, spec, self._reader, self._metrics, now)
            self._looker.counted(spec, memory, now)
            view = self._view(key, body, checked, spec, memory, state, now, compared)
        wait = await self._commit(key, body, live, view, memory, now)
        await self._act(key, view, memory)
        show(self._metrics, key, view, memory, now)
        waits = [one for one in (wait, compared.next_look) if one is not None]
        return self._next_look(memory, view, min(waits, default=None), now)

    def rerender(self) -> None:
        """What is rendered has changed, though neither spec nor decision has."""
        for key, memory in self._memories.items():
            memory.settled_key = None
            self._mark(key, 0.0)

    def _check(self, key: Key, body: Body) -> Checked:
        meta = body["metadata"]
        known = self._checked.get(key)
        if known is None or known[:2] != (meta["uid"], meta["generation"]):
            known = (meta["uid"], meta["generation"], self._renderer.check(body))
            self._checked[key] = known
        return known[2]

    def _memory(self, key: Key, body: Body, spec: SpecDeploymentSpec, now: float) -> Memory:
        block_seconds = duration(spec.policy.block).total_seconds()
        memory = self._memories.get(key)
        if memory is None or memory.uid != body["metadata"]["uid"]:
            memory = self._memories[key] = Memory.new(body["metadata"]["uid"], block_seconds, now)
            memory.status_written = now - memory.jitter * REFRESH_SECONDS / 2.0
        if jump := memory.clock_read(now, self._monotonic()):
            logger.warning("%s/%s: the clock was set by %+.1f s; what was waited for moves with it", *key, jump)
        memory.retimed(block_seconds, now)
        return memory

    def _gate(
        self, key: Key, body: Body, checked: Checked, spec: SpecDeploymentSpec, memory: Memory, now: float
    ) -> Gate:
        # A CRD of an earlier release keeps no verdict in status: it must not be asked for again and again.
        status = parse_status(body)
        known, planned = status.preflight or memory.compared, status.plan or self._reporter.plan(key)
        owned, pods = self._observed.owned(key), self._observed.pods(key)
        limit, wanted = self._renderer.preflight_seconds, None
        if (request := checked.preflight) is not None:
            refused = memory.refused.get((JOB, preflight_object(key[1], request.key)))
            wanted = Wanted(memory.comparing_since(request.key, now), refused)
        found = gate(key[1], spec, request, known, owned, pods, now, limit, planned, wanted)
        memory.compared = found.record
        if not found.run:
            memory.comparing = None
        return self._reporter.follow(key, body, spec, pods, found, planned, now)

    def _fleet(self, key: Key, body: Body, spec: SpecDeploymentSpec, compared: Gate | None = None) -> Fleet:
        uid = body["metadata"]["uid"]
        memory = self._memories.get(key)
        outside = memory.outside.assessment if memory is not None and memory.outside is not None else None
        owned, pods = self._observed.owned(key), self._observed.pods(key)
        held = compared.held if compared is not None else None
        one_node = memory.claims.one_node if memory is not None else ()
        return fleet(key[1], spec, uid, owned, pods, outside, self._renderer.routers, held, one_node)

    def _view(
        self,
        key: Key,
        body: Body,
        checked: Checked,
        spec: SpecDeploymentSpec,
        memory: Memory,
        state: Fleet,
        now: float,
        compared: Gate,
    ) -> View:
        owned = self._observed.owned(key)
        return compute(key, body, checked, spec, memory, state, owned, self._renderer, now, compared)

    # --- writing

    async def _commit(
        self, key: Key, body: Body, live: Mapping[str, Any], view: View, memory: Memory, now: float
    ) -> float | None:
        """Write the status if it is not what is `live`, then take over the decision.

        Returns the seconds until withheld news is due.
        """
        new, wait = dump(view.status), None
        before = parse_status(body)
        # Told first: who is killed in between has not told it, or tells it once more under the same name.
        await self._teller.upgraded(key, body, before.upgrade, view.status.upgrade, now)
        due = self._due(live, new, memory, now)
        if due == 0.0:
            await self._write_status(key, body, new, memory, now)
        else:
            wait = due
        switched = [one for one in view.decisions.values() if one.verdict.switched]
        memory.routes = {name: one.state for name, one in view.decisions.items()}
        memory.blocks = {}
        if memory.outside is not None:
            memory.outside.blocks = {}
        for one in switched:
            memory.switch_started = now
            self._metrics.switches.labels(*key, view_pool(one, view.spec)).inc()
            logger.info("%s/%s route %s: %s", *key, one.name, one.verdict.message)
        await self._teller.switches(key, body, view.status, memory, now)
        if before.upgrade is not None and view.status.upgrade is None:
            memory.recount(now)
        return wait

    def _due(self, old: Mapping[str, Any], new: Mapping[str, Any], memory: Memory, now: float) -> float | None:
        """0 to write now, None for nothing new, else seconds for which the news can wait."""
        age = now - memory.status_written
        if noticeable(old) != noticeable(new):
            if not counts_only(old, new):
                return 0.0
            return max(0.0, COUNTS_SECONDS - age)
        if figures(old) != figures(new):
            # Ten blocks, and never more often than every ten minutes where a block is a minute or longer.
            refresh = memory.jitter * min(REFRESH_SECONDS, max(30.0, 10.0 * memory.block_seconds))
            return max(0.0, refresh - age)
        return None

    async def _write_status(self, key: Key, body: Body, new: Mapping[str, Any], memory: Memory, now: float) -> None:
        answer = await self._client.replace_status(SPEC_DEPLOYMENT, body, dict(new))
        memory.status_written = now
        memory.written = answer.get("status")
        self._observed.put_deployment(answer)

    async def _act(self, key: Key, view: View, memory: Memory) -> None:
        body = self._observed.deployment(key)
        if body is None:
            return
        troubles = set(memory.taken), dict(memory.refused)
        outcome = await self._executor.carry_out(key, body, view.plan, memory)
        for one in outcome.corrected:
            await self._teller.corrected(key, body, one, self._clock())
        if memory.taken or memory.refused:
            memory.settled_key = None
        else:
            memory.settled_key = view.settled_key
        routes_written = any(one.kind == CONFIG_MAP for one in view.plan.applies)
        memory.wanted_version = view.version
        memory.wanted = view.plan.wanted
        for id_ in set(memory.verified) - memory.wanted:
            del memory.verified[id_]
        await self._deliver(key, view, memory, routes_written)
        if outcome.written or troubles != (set(memory.taken), memory.refused):
            self._mark(key, 0.0)

    async def _deliver(self, key: Key, view: View, memory: Memory, routes_written: bool) -> None:
        """See to it that routers serve the wanted table: annotate their pods, and read back."""
        routers, version = view.state.routers, view.version
        if memory.serving(routers, version).confirmed or not view.state.router_pods:
            self._delivered(memory)
            return
        asked = memory.asked(routers, self._clock())
        if not routes_written:
            await read_served(memory, asked, view.spec.draft.name, self._reader)
        behind = [
            pod
            for pod in view.state.router_pods
            if pod.routes_version != version
            and (routes_written or (pod.uid in memory.served and memory.served[pod.uid].version != version))
        ]
        denied = memory.pods_denied
        await self._executor.annotate(behind, version, memory)
        if memory.pods_denied != denied:
            self._mark(key, 0.0)
        if memory.serving(routers, version).confirmed:
            self._delivered(memory)
            self._mark(key, 0.0)
        elif asked and (routes_written or behind):
            self._start_poll(key, view, memory)

    def _delivered(self, memory: Memory) -> None:
        if memory.switch_started is not None:
            self._metrics.switch_seconds.observe(max(0.0, self._clock() - memory.switch_started))
            memory.switch_started = None

    def _start_poll(self, key: Key, view: View, memory: Memory) -> None:
        running = self._polls.pop(key, None)
        if running is not None:
            running.cancel()

        async def poll() -> None:
            await poll_served(memory, view.state.routers, view.spec.draft.name, view.version, self._reader)
            self._mark(key, 0.0)

        self._polls[key] = asyncio.create_task(poll(), name=f"poll {key}")

    async def _invalid(self, key: Key, body: Body, checked: Checked, now: float) -> float | None:
        self._scraper.forget(key)
        memory = self._memories.get(key)
        before = parse_status(body if memory is None else memory.recalled(body))
        state = self._fleet(key, body, checked.spec) if checked.spec is not None else None
        generation = int(body["metadata"]["generation"])
        said = invalid(checked.errors, before, state)
        status = before.model_copy(
            update={
                "observed_generation": generation,
                "conditions": conditions(said, before, generation, timestamp(now)),
                "routes": _with_state(before.routes, memory),
                "pools": pools_status(state) if state is not None else before.pools,
            }
        )
        new = dump(status)
        if noticeable(body.get("status") or {}) != noticeable(new):
            answer = await self._client.replace_status(SPEC_DEPLOYMENT, body, new)
            if memory is not None:
                memory.written = answer.get("status")
            self._observed.put_deployment(answer)
        return None

    # --- the rest

    def _forget(self, key: Key) -> None:
        memory = self._memories.pop(key, None)
        if memory is not None:
            self._looker.forget(memory)
        self._checked.pop(key, None)
        self._scraper.forget(key)
        self._reporter.forget(key)
        poll = self._polls.pop(key, None)
        if poll is not None:
            poll.cancel()
        self._metrics.forget(*key)

    def _next_look(self, memory: Memory, view: View, wait: float | None, now: float) -> float:
        looks = [max(0.05, memory.next_sample - self._clock()), *self._looker.next_look(memory, now)]
        if wait is not None:
            looks.append(wait)
        looks += [max(0.05, word.until - now) for word in memory.by_hand.values()]
        confirmed = memory.serving(view.state.routers, view.version).confirmed
        if view.state.routers and not confirmed and not memory.unseen(view.state.routers, now):
            looks.append(UNCONFIRMED_SECONDS)
        if view.moving and confirmed:
            looks.append(0.05)
        if _awaits_routers(view.status) and not memory.connected(view.state):
            looks.append(CONNECTING_SECONDS)
        if memory.taken or memory.refused:
            looks.append(RETRY_SECONDS)
        looks += [
            max(0.05, one.verdict.next_look_at - now)
            for one in view.decisions.values()
            if one.verdict.next_look_at is not None
        ]
        return min(looks)


def _awaits_routers(status: SpecDeploymentStatus) -> bool:
    """Whether something goes on as soon as routers reach all pools."""
    return not was_ready(status) or status.upgrade is not None


def _with_state(routes: list[RouteStatus], memory: Memory | None) -> list[RouteStatus]:
    if memory is None:
        return routes
    return [
        route.model_copy(update={"state": memory.routes[route.name].encode()}) if route.name in memory.routes else route
        for route in routes
    ]
