"""The queue: one at a time, nothing lost, failures backed off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from specfleet.handlers.queue import DueQueue


async def run_until(queue: DueQueue[str], done: asyncio.Event) -> None:
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(10.0):
            await done.wait()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_burst_of_marks_is_one_pass() -> None:
    passes, done = [], asyncio.Event()

    async def work(key: str) -> float | None:
        passes.append(key)
        done.set()
        return None

    queue = DueQueue(work)
    for _ in range(50):
        queue.mark("a")
    await run_until(queue, done)
    assert passes == ["a"]


async def test_a_mark_during_a_pass_leads_to_another_and_never_to_two_at_once() -> None:
    running, most, passes, done = 0, 0, 0, asyncio.Event()

    async def work(key: str) -> float | None:
        nonlocal running, most, passes
        running += 1
        most = max(most, running)
        passes += 1
        if passes == 1:
            queue.mark("a", 0.0)
        await asyncio.sleep(0)
        running -= 1
        if passes == 2:
            done.set()
        return None

    queue: DueQueue[str] = DueQueue(work)
    queue.mark("a", 0.0)
    await run_until(queue, done)
    assert (passes, most) == (2, 1)


async def test_a_pass_names_its_next_time_and_an_earlier_mark_wins() -> None:
    passes, done = 0, asyncio.Event()

    async def work(key: str) -> float | None:
        nonlocal passes
        passes += 1
        if passes == 1:
            asyncio.get_running_loop().call_later(0.01, queue.mark, "a", 0.0)
        else:
            done.set()
        return 3600.0

    queue: DueQueue[str] = DueQueue(work)
    queue.mark("a")
    await run_until(queue, done)
    assert passes == 2


async def test_one_key_that_hangs_does_not_hold_up_the_others() -> None:
    done, hang = asyncio.Event(), asyncio.Event()

    async def work(key: str) -> float | None:
        if key == "stuck":
            await hang.wait()
        else:
            done.set()
        return None

    queue = DueQueue(work, workers=2)
    queue.mark("stuck", 0.0)
    queue.mark("b", 0.0)
    await run_until(queue, done)


async def test_failures_back_off_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specfleet.handlers.queue.FIRST_BACKOFF_SECONDS", 0.01)
    failures: list[tuple[str, str]] = []
    done = asyncio.Event()

    async def work(key: str) -> float | None:
        if len(failures) < 3:
            raise ValueError("no")
        done.set()
        return None

    queue = DueQueue(work, on_error=lambda key, error: failures.append((key, str(error))))
    queue.mark("a")
    await run_until(queue, done)
    assert failures == [("a", "no")] * 3


async def test_a_fatal_error_ends_the_queue() -> None:
    async def work(key: str) -> float | None:
        raise KeyboardInterrupt if key == "never" else LookupError("lease")

    work_on: Callable[[str], Awaitable[float | None]] = work
    queue = DueQueue(work_on, fatal=(LookupError,))
    queue.mark("a")
    with pytest.raises(LookupError, match="lease"):
        async with asyncio.timeout(10.0):
            await queue.run()


async def test_a_forgotten_key_is_not_worked_on() -> None:
    passes, done = [], asyncio.Event()

    async def work(key: str) -> float | None:
        passes.append(key)
        done.set()
        return None

    queue = DueQueue(work)
    queue.mark("gone", 0.0)
    queue.forget("gone")
    queue.mark("b", 0.01)
    await run_until(queue, done)
    assert passes == ["b"]
