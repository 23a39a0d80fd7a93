"""One line a step: its name, what it does, how long it took; a heartbeat while it is long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.testbed.errors import TestbedError

HEARTBEAT_SECONDS = 30.0


def say(line: str) -> None:
    """Write one line of progress; standard output is left to what a program reads."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(name: str, what: str) -> Iterator[None]:
    """Report the step `name`, with a line every 30 s until it ends.

    Raises:
        TestbedError: whatever went wrong inside, prefixed with the step's name.
    """
    started = time.monotonic()
    done = threading.Event()

    def heartbeat() -> None:
        while not done.wait(HEARTBEAT_SECONDS):
            say(f"[testbed] {name}: still at it after {time.monotonic() - started:.0f} s")

    say(f"[testbed] {name}: {what} ...")
    beat = threading.Thread(target=heartbeat, daemon=True)
    beat.start()
    try:
        yield
    except TestbedError as error:
        say(f"[testbed] {name}: FAILED after {time.monotonic() - started:.1f} s")
        if error.step is None:
            wrapped = TestbedError(f"step {name}: {error}", error.log)
            wrapped.step = name
            raise wrapped from error
        raise
    else:
        say(f"[testbed] {name}: done in {time.monotonic() - started:.1f} s")
    finally:
        done.set()
        beat.join()
