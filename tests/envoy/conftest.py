"""Fixtures: a bed that tests share as long as they break nothing, and a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.envoy.harness import ROOT, Bed, bed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs Envoy."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.envoy)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """One engine a pool, pace 1 ms; nobody kills anything here."""
    options = ("--step-ms", "1", "--prefill-ms", "1", "--recordings", str(ROOT / "tests/envoy/recordings"))
    with bed(tmp_path_factory.mktemp("router"), options=options) as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without limits of its own."""
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session
