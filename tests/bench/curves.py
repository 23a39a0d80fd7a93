"""`python -m tests.bench.curves`: step time of the real vLLM by running batch, with speculation and without.

Two engines with the arguments that the demo's pools are rendered with, pinned to one and the same core, one of them
idle at any time. For each batch, windows alternate between them; in a window that many clients each hold one stream
open, with code, JSON and chat in equal parts. From each stream: tokens, decode steps (N - A by the engine's own
figures) and the time from first token to last. What else the machine did meanwhile is written beside each window.

The result is what tests/bench/mixed.py runs its engines by, and a load run to hold a measured break-even against.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import aiohttp
import yaml

from tests.bench.machine import commit, machine
from tests.node import prompts
from tests.node.answers import split_events
from tests.node.demo import EXAMPLE
from tests.node.install import REPOSITORY
from tests.node.traffic import Ask
from tests.testbed.engine import engine_root, ensure_vllm
from tests.testbed.model import ensure_model

ARMS = ("speculative", "baseline")
CONTENT: dict[str, prompts.Maker] = {"code": prompts.code, "json": prompts.json_records, "chat": prompts.chat}
PORTS = {"speculative": 18101, "baseline": 18102}
READY_SECONDS = 600.0
WARM_STREAMS = 2


@dataclass
class Sums:
    """Of one content in one window: tokens after the first, decode steps, streams, and seconds first to last token."""

    tokens: int = 0
    steps: int = 0
    streams: int = 0
    seconds: float = 0.0


@dataclass
class Window:
    """One arm for a while at one batch."""

    arm: str
    batch: int
    content: dict[str, Sums] = field(default_factory=lambda: defaultdict(Sums))
    other_cores: float = 0.0

    @property
    def step_ms(self) -> float:
        """Milliseconds a decode step, all content together."""
        sums = self.content.values()
        return 1000.0 * sum(one.seconds for one in sums) / sum(one.steps for one in sums)

    @property
    def token_ms(self) -> float:
        """Milliseconds a token, all content together."""
        sums = self.content.values()
        return 1000.0 * sum(one.seconds for one in sums) / sum(one.tokens for one in sums)


def rendered_engines() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Arguments and environment of the demo's engine containers by arm, as `specfleet render` shows them."""
    settings = REPOSITORY / "build" / "curves-settings.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("allowHostPath: true\n")
    words = [str(Path(sys.executable).parent / "specfleet"), "render", "-f", str(EXAMPLE), "--settings", str(settings)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    found = {}
    for document in yaml.safe_load_all(shown.stdout):
        if document["kind"] != "Deployment" or document["metadata"]["name"].endswith("-router"):
            continue
        arm = "baseline" if document["metadata"]["name"].endswith("-baseline") else "speculative"
        [engine] = [c for c in document["spec"]["template"]["spec"]["containers"] if c["name"] == "engine"]
        env = {one["name"]: one["value"] for one in engine.get("env", ()) if "value" in one}
        found[arm] = ([*engine.get("command", ()), *engine.get("args", ())], env)
    return found


@contextlib.contextmanager
def engines(core: int) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Both engines, ready, on `core`."""
    ensure_vllm()
    model = ensure_model()
    started: dict[str, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as stack:
        for arm, (arguments, env) in rendered_engines().items():
            words = arguments[arguments.index("serve") :]
            words[1] = str(model)
            words = [w for w in words if not w.startswith("--port")] + [f"--port={PORTS[arm]}"]
            log = stack.enter_context((REPOSITORY / "build" / f"curves-{arm}.log").open("wb"))
            process = subprocess.Popen(
                ["taskset", "-c", str(core), str(engine_root() / "bin" / "vllm"), *words],
                env={**os.environ, **env, "HF_HUB_OFFLINE": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)
            started[arm] = process
        yield started


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)


def url_of(arm: str) -> str:
    """Where an engine of this benchmark's own serves."""
    return f"http://127.0.0.1:{PORTS[arm]}"


async def ready(session: aiohttp.ClientSession, arm: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the engine serves."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"the {arm} engine ended with {process.returncode}: see build/curves-{arm}.log")
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(url_of(arm) + "/health") as response:
                if response.status == 200:
                    return
        await asyncio.sleep(1.0)
    raise SystemExit(f"the {arm} engine was not ready within {READY_SECONDS:.0f} s: see build/curves-{arm}.log")


async def one_stream(session: aiohttp.ClientSession, url: str, ask: Ask) -> Sums:
    """One request, streamed, and what it took."""
    body = {**ask.body, "stream": True, "stream_options": {"include_usage": True}}
    first = last = 0.0
    received = bytearray()
    async with session.post(url + ask.path, json=body, headers=ask.headers) as response:
        response.raise_for_status()
        async for chunk in response.content.iter_any():
            last = time.monotonic()
            first = first or last
            received += chunk
    usage: dict[str, Any] = next(
        document for document in map(json.loads, split_events(bytes(received))[-2::-1]) if document.get("usage")
    )
    tokens = usage["usage"]["completion_tokens"] - 1
    figures = (usage.get("metrics") or {}).get("speculative_decoding") or {}
    accepted = min(figures.get("num_accepted_draft_tokens", 0), max(0, tokens - figures.get("num_spec_steps", 0)))
    return Sums(tokens, tokens - accepted, 1, last - first)


async def window(
    session: aiohttp.ClientSession,
    arm: str,
    url: str,
    batch: int,
    seconds: float,
    seed: str,
    content: Mapping[str, prompts.Maker] = MappingProxyType(CONTENT),
) -> Window:
    """`batch` clients for `seconds`. The last stream of each client, which ends among fewer, is left out."""
    result = Window(arm, batch)
    until = time.monotonic() + seconds
    busy, own = _busy_seconds(), _own_seconds()
    begun = time.monotonic()

    async def client(number: int) -> None:
        draw = random.Random(f"{seed}-{batch}-{number}")
        kinds = list(content)
        count = number
        while time.monotonic() < until:
            kind = kinds[count % len(kinds)]
            sums = await one_stream(session, url, content[kind](draw, count))
            count += 1
            if time.monotonic() < until and sums.tokens > 0:
                held = result.content[kind]
                held.tokens += sums.tokens
                held.steps += sums.steps
                held.streams += 1
                held.seconds += sums.seconds

    await asyncio.gather(*(client(number) for number in range(batch)))
    gone = time.monotonic() - begun
    result.other_cores = max(0.0, (_busy_seconds() - busy) - (_own_seconds() - own)) / gone
    return result


def _busy_seconds() -> float:
    """CPU seconds of the whole machine outside idle."""
    numbers = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """CPU seconds of all engines and of this process."""
    total = sum(os.times()[:2])
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # An engine's processes call themselves so, whether they run in a pod or not.
            if b"vllm" in (process / "cmdline").read_bytes().lower():
                words = (process / "stat").read_text().rpartition(")")[2].split()
                total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total


def report(windows: Sequence[Window], begun: datetime, options: argparse.Namespace) -> dict[str, Any]:
    """Per arm and batch: step time in ms as the median over windows with its range, tokens a step by content, TPOT."""
    arms: dict[str, Any] = {}
    for arm in ARMS:
        arms[arm] = []
        for batch in options.batches:
            mine = [one for one in windows if one.arm == arm and one.batch == batch]
            steps = sorted(one.step_ms for one in mine)
            content = {}
            for kind in CONTENT:
                sums = [one.content[kind] for one in mine if one.content[kind].steps]
                tokens, count = sum(one.tokens for one in sums), sum(one.steps for one in sums)
                content[kind] = {
                    "tokensPerStep": round(tokens / count, 3),
                    "msPerToken": round(median(1000.0 * one.seconds / one.tokens for one in sums), 2),
                    "streams": sum(one.streams for one in sums),
                }
            arms[arm].append(
                {
                    "batch": batch,
                    "stepMs": round(median(steps), 2),
                    "stepMsWindows": [round(step, 2) for step in steps],
                    "otherCores": round(median(one.other_cores for one in mine), 2),
                    "content": content,
                }
            )
    needed = [
        {"batch": on["batch"], "tokensPerStep": round(on["stepMs"] / off["stepMs"], 3)}
        for on, off in zip(arms["speculative"], arms["baseline"], strict=True)
    ]
    return {
        "engine": "vLLM 0.32 on CPU, Gemma 3 270M, n-gram k=4, one core",
        "arms": arms,
        "breakEven": needed,
        "windows": options.windows,
        "windowSeconds": options.seconds,
        "date": begun.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
    }


def say(line: str) -> None:
    """One line of progress."""
    print(f"[bench-curves] {line}", file=sys.stderr, flush=True)


async def measure(options: argparse.Namespace) -> list[Window]:
    """All windows, in an order that alternates the arms and turns round with every pair."""
    done: list[Window] = []
    with engines(options.core) as started:
        timeout = aiohttp.ClientTimeout(total=300)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
            for arm, process in started.items():
                await ready(session, arm, process)
            for arm in ARMS:
                for count in range(WARM_STREAMS * len(CONTENT)):
                    kind = list(CONTENT)[count % len(CONTENT)]
                    await one_stream(session, url_of(arm), CONTENT[kind](random.Random(count), count))
            for number in range(options.windows):
                for batch in options.batches:
                    for arm in ARMS if number % 2 else ARMS[::-1]:
                        seed = f"{options.seed}-{number}"
                        one = await window(session, arm, url_of(arm), batch, options.seconds, seed)
                        done.append(one)
                        say(f"{number + 1}/{options.windows} batch {batch} {arm}: {one.step_ms:.1f} ms a step")
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and write the JSON result."""
    made = argparse.ArgumentParser(prog="python -m tests.bench.curves", description=__doc__)
    made.add_argument("--out", type=Path, default=REPOSITORY / "build" / "bench-curves.json")
    made.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8], help="clients (default: 1 2 4 8)")
    made.add_argument("--windows", type=int, default=6, help="of each arm and batch (default: 6)")
    made.add_argument("--seconds", type=float, default=120.0, help="of a window (default: 120)")
    made.add_argument(
        "--core", type=int, default=max(os.sched_getaffinity(0)), help="both engines' (default: the last)"
    )
    made.add_argument("--seed", type=int, default=1)
    options = made.parse_args(arguments)
    begun = datetime.now(UTC)
    result = report(asyncio.run(measure(options)), begun, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for one in result["breakEven"]:
        say(f"batch {one['batch']}: {one['tokensPerStep']} tokens a step to pay")
    return 0


if __name__ == "__main__":
    sys.exit(main())
