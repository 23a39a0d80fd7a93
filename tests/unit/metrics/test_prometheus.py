"""How the operator asks Prometheus: in bulk, on a grid, and never held up by one that hangs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from http.server import BaseHTTPRequestHandler

import pytest

from specfleet.api.conditions import Reason
from specfleet.metrics.promapi import Credentials, Endpoint
from specfleet.metrics.prometheus import SHARD_CHARACTERS, Key, PrometheusSource, Wanted, shards
from tests.unit.metrics.answers import Answers, Send, document, plain, router, slow

KEYS: list[Key] = [("serving", "assistant"), ("serving", "coder"), ("research", "assistant")]


class Asking:
    """A running source, and the news that it gave."""

    def __init__(self) -> None:
        self.news: list[Key] = []
        self.source = PrometheusSource(lambda key, seconds: self.news.append(key))

    def want(self, url: str, *keys: Key, interval: float = 0.1, timeout: float = 2.0) -> None:
        """Subscribe these."""
        for key in keys:
            self.source.want(key, Wanted(Endpoint(url, timeout_seconds=timeout), interval, 60.0))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it, for five seconds."""
        deadline = time.monotonic() + 5.0
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    def reason(self, key: Key) -> Reason | None:
        """Why there is nothing."""
        reading = self.source.reading(key)
        assert reading is not None
        return reading.trouble.reason if reading.trouble is not None else None


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    made = Asking()
    task = asyncio.create_task(made.source.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def fleet(at: float, *keys: Key) -> Send:
    """What a Prometheus answers that has these routers and one of somebody else."""
    routers = [*keys, ("serving", "other")]
    return plain(document(one for space, name in routers for one in router(at, f"{name}-router-7d9c-abcde", space)))


async def test_it_ends_though_it_is_cancelled_in_the_moment_that_wakes_it() -> None:
    source = PrometheusSource(lambda key, seconds: None)
    wanted = Wanted(Endpoint("http://127.0.0.1:1"), 60.0, 60.0)
    source.want(KEYS[0], wanted)
    task = asyncio.create_task(source.run())
    for _ in range(3):  # until it waits for the time to ask
        await asyncio.sleep(0)
    source.want(KEYS[1], wanted)
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=5.0)
    task.cancel()
    assert ended == {task}


async def test_one_query_asks_for_all_and_each_gets_its_own(asking: Asking) -> None:
    with Answers(fleet(1000.0, *KEYS)) as server:
        asking.want(server.url, *KEYS, interval=60.0)
        await asking.until(lambda: len(asking.news) == 3)

    assert len(server.seen) == 1
    for _, name in KEYS:
        assert name in server.seen[0][0]
    for key in KEYS:
        reading = asking.source.reading(key)
        assert reading is not None
        assert reading.trouble is None
        assert list(reading.routers) == [f"{key[1]}-router-7d9c-abcde"]
        assert reading.routers[f"{key[1]}-router-7d9c-abcde"][0].at == 1000.0


async def test_times_by_bucket_are_asked_for_where_they_are_wanted(asking: Asking) -> None:
    with Answers(fleet(1000.0, *KEYS)) as server:
        endpoint = Endpoint(server.url, timeout_seconds=2.0)
        for key in KEYS:
            asking.source.want(key, Wanted(endpoint, 60.0, 60.0, buckets=key == KEYS[1]))
        await asking.until(lambda: len(asking.news) == 3)

    plain_query, timed_query = (query for query, *_ in server.seen)
    assert "stream_tpot" not in plain_query
    assert "coder" not in plain_query
    assert "stream_tpot" in timed_query
    assert "coder" in timed_query
    assert {key: bool(found.routers) for key in KEYS if (found := asking.source.reading(key))} == dict.fromkeys(
        KEYS, True
    )


async def test_a_name_that_begins_like_another_s_router_is_another_s(asking: Asking) -> None:
    with Answers(plain(document(router(1000.0, "a-router-b-router-7d9c-abcde", "serving")))) as server:
        asking.want(server.url, ("serving", "a"), ("serving", "a-router-b"), interval=60.0)
        await asking.until(lambda: len(asking.news) == 2)

    found = {name: asking.source.reading(("serving", name)) for name in ("a", "a-router-b")}
    assert [len(one.routers) for one in found.values() if one is not None] == [0, 1]


async def test_a_pod_whose_long_name_kubernetes_cut_is_still_a_router(asking: Asking) -> None:
    # Names of 39 to 45 characters: of NAME-router-REPLICASET- 58 characters stay, without the last dash.
    name = "a-fleet-with-a-name-as-long-as-they-can-be-45"
    pod = f"{name}-router-7d9c5abcde-"[:58] + "xk2vp"
    with Answers(plain(document(router(1000.0, pod, "serving")))) as server:
        asking.want(server.url, ("serving", name), interval=60.0)
        await asking.until(lambda: len(asking.news) == 1)

    reading = asking.source.reading(("serving", name))
    assert reading is not None
    assert list(reading.routers) == [pod]


async def test_it_goes_on_asking_on_a_grid_and_stops_when_forgotten(asking: Asking) -> None:
    with Answers(fleet(1000.0, *KEYS)) as server:
        asking.want(server.url, *KEYS)
        await asking.until(lambda: len(server.seen) >= 4)
        assert len(asking.news) >= 3 * (len(server.seen) - 1)  # all three with each query
        for key in KEYS:
            asking.source.forget(key)
        await asyncio.sleep(0.15)
        asked = len(server.seen)
        await asyncio.sleep(0.25)
        assert len(server.seen) == asked
    assert asking.source.reading(KEYS[0]) is None


async def test_a_server_that_hangs_holds_up_nobody_and_gets_one_request_at_a_time(asking: Asking) -> None:
    with Answers(slow) as hung, Answers(fleet(1000.0, KEYS[1])) as well:
        asking.want(hung.url, KEYS[0], timeout=0.5)
        asking.want(well.url, KEYS[1])
        await asking.until(lambda: len(well.seen) >= 3)
        await asking.until(lambda: asking.source.reading(KEYS[0]) is not None)
        assert asking.reason(KEYS[0]) is Reason.PROMETHEUS_UNREACHABLE
        assert asking.reason(KEYS[1]) is None
        assert len(hung.seen) <= 2


async def test_the_first_answer_is_waited_for_unless_the_server_is_known_to_be_away(asking: Asking) -> None:
    with Answers(slow) as server:
        asking.want(server.url, KEYS[0], timeout=0.5)
        began = time.monotonic()
        await asking.source.answered(KEYS[0], 5.0)
        assert time.monotonic() - began >= 0.5
        asking.want(server.url, KEYS[1], timeout=0.5)
        began = time.monotonic()
        await asking.source.answered(KEYS[1], 5.0)
        assert time.monotonic() - began < 0.4


async def test_what_is_not_scraped_is_asked_for_its_cause_once(asking: Asking) -> None:
    def send(handler: BaseHTTPRequestHandler, query: str) -> None:
        labelled = [{"metric": {"namespace": "serving"}, "values": [[1, "1"]]}]
        plain(document(labelled if query.startswith("(count by") else []))(handler, query)

    with Answers(send) as server:
        asking.want(server.url, KEYS[0])
        await asking.until(lambda: len(server.seen) >= 5)
        reading = asking.source.reading(KEYS[0])

    assert reading is not None
    assert reading.trouble is not None
    assert reading.trouble.reason is Reason.ROUTERS_NOT_SCRAPED
    assert "without the labels namespace and pod" in reading.trouble.message
    assert sum(query.startswith("(count by") for query, _ in server.seen) == 1


async def test_a_partial_answer_is_not_used_at_all(asking: Asking) -> None:
    with Answers(plain(document(router(1000.0), warnings=["a store is down"]))) as server:
        asking.want(server.url, KEYS[0])
        await asking.until(lambda: asking.source.reading(KEYS[0]) is not None)
        reading = asking.source.reading(KEYS[0])

    assert reading is not None
    assert reading.routers == {}
    assert asking.reason(KEYS[0]) is Reason.PROMETHEUS_PARTIAL


@pytest.mark.parametrize("value", [{"values": [["x", "1"]]}, {"values": [[1.0, "one"]]}, {"values": [1]}])
async def test_series_that_cannot_be_read_are_no_figures(asking: Asking, value: dict[str, object]) -> None:
    broken = [{**router(1000.0)[1], **value}]
    with Answers(plain(document(broken))) as server:
        asking.want(server.url, KEYS[0])
        await asking.until(lambda: asking.source.reading(KEYS[0]) is not None)

    assert asking.reason(KEYS[0]) is Reason.PROMETHEUS_FAILED


async def test_another_server_is_another_subscription(asking: Asking) -> None:
    with Answers(fleet(1000.0, KEYS[0])) as one, Answers(fleet(2000.0, KEYS[0])) as other:
        asking.want(one.url, KEYS[0])
        await asking.until(lambda: asking.source.reading(KEYS[0]) is not None)
        asking.want(other.url, KEYS[0])
        assert asking.source.reading(KEYS[0]) is None
        await asking.until(lambda: asking.source.reading(KEYS[0]) is not None)
        reading = asking.source.reading(KEYS[0])

    assert reading is not None
    assert next(iter(reading.routers.values()))[0].at == 2000.0


def test_shards_hold_everybody_once_and_keep_queries_short() -> None:
    keys = [(f"team-{number % 40}", f"assistant-{number}") for number in range(1000)]

    found = list(shards(keys))

    assert sorted(key for group in found for key in group) == sorted(keys)
    assert 25 <= len(found) <= 60
    for group in found:
        names = "|".join({space for space, _ in group}) + "|".join(name for _, name in group)
        assert len(re.sub("\\s", "", names)) <= SHARD_CHARACTERS


def test_an_endpoint_with_credentials_is_not_one_without() -> None:
    assert Endpoint("http://a", Credentials()) != Endpoint("http://a")
