"""Source Prometheus in a pass: what it has of one SpecDeployment's routers goes where direct readings go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from specfleet.api.conditions import Reason
from specfleet.api.v1alpha1 import MetricsSource, SpecDeploymentSpec
from specfleet.decision.reasons import Hold
from specfleet.handlers.conditions import Said
from specfleet.handlers.observed import Key
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.promapi import Credentials, Endpoint
from specfleet.metrics.prometheus import PrometheusSource, Reading, Wanted
from specfleet.routing.counters import RouterSample
from specfleet.settings import PrometheusSettings

FIRST_ANSWER_SECONDS = 2.0
AHEAD_SECONDS = 30.0
MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 1.0, 15.0
MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS = 180.0, 1800.0
FOREIGN_MEBIBYTES = 4
MEBIBYTE = 1024 * 1024


@dataclass
class Scraping:
    """What is remembered of source Prometheus for one SpecDeployment.

    Attributes:
        since: epoch seconds from which samples count; what was scraped before is a base to count from.
        newest: the last sample that was taken in, by router pod uid.
        reading: the last answer.
        ahead: seconds by which a sample's time lies in the future, where that is more than clocks may differ.
    """

    endpoint: Endpoint
    since: float
    newest: dict[str, RouterSample] = field(default_factory=dict)
    reading: Reading | None = None
    ahead: float = 0.0

    def new_samples(self, routers: Iterable[PodRecord], now: float) -> Iterator[tuple[str, RouterSample]]:
        """Samples that have not been taken in yet, by router pod uid, oldest first; each is given once."""
        if self.reading is None:
            return
        self.ahead = 0.0
        for pod in routers:
            samples = self.reading.routers.get(pod.name, ())
            for sample in _after(samples, self.newest.get(pod.uid), self.since):
                if sample.at > now + AHEAD_SECONDS:
                    self.ahead = max(self.ahead, sample.at - now)
                else:
                    self.newest[pod.uid] = sample
                    yield pod.uid, sample


class Scraper:
    """Subscriptions of SpecDeployments at one `PrometheusSource`, under one operator's settings."""

    def __init__(self, source: PrometheusSource, settings: PrometheusSettings) -> None:
        self._source = source
        self._settings = settings

    async def follow(
        self, key: Key, spec: SpecDeploymentSpec, block_seconds: float, known: Scraping | None, now: float
    ) -> Scraping | None:
        """What is known by now; None where the source is another.

        The first time this waits for an answer, for a moment: with none, it would look as if the figures were lost.
        """
        endpoint = self.endpoint(spec)
        if endpoint is None:
            self._source.forget(key)
            return None
        interval = min(MAX_INTERVAL_SECONDS, max(MIN_INTERVAL_SECONDS, block_seconds / 4.0))
        window = min(MAX_WINDOW_SECONDS, max(MIN_WINDOW_SECONDS, 2.0 * block_seconds))
        policies = (spec.policy, *(route.policy for route in spec.routing.routes))
        buckets = any(policy is not None and policy.slo is not None for policy in policies)
        self._source.want(key, Wanted(endpoint, interval, window, buckets))
        if known is None or known.endpoint != endpoint:
            known = Scraping(endpoint, now)
            await self._source.answered(key, FIRST_ANSWER_SECONDS)
        known.reading = self._source.reading(key) or known.reading
        return known

    def forget(self, key: Key) -> None:
        """The SpecDeployment is gone, or cannot be rendered."""
        self._source.forget(key)

    def endpoint(self, spec: SpecDeploymentSpec) -> Endpoint | None:
        """Which server is asked, with what; None for another source, or where nobody says where it is."""
        if spec.metrics.source is not MetricsSource.PROMETHEUS:
            return None
        settings = self._settings
        limit_bytes = settings.answer_mebibytes * MEBIBYTE
        if spec.metrics.prometheus is not None and spec.metrics.prometheus.url is not None:
            own = min(limit_bytes, FOREIGN_MEBIBYTES * MEBIBYTE)
            return Endpoint(spec.metrics.prometheus.url, None, settings.timeout_seconds, own)
        if settings.url is None:
            return None
        credentials = Credentials(
            bearer_token_file=settings.bearer_token_file,
            username_file=settings.username_file,
            password_file=settings.password_file,
            ca_file=settings.ca_file,
        )
        return Endpoint(settings.url, credentials, settings.timeout_seconds, limit_bytes)


def scraped_said(scraping: Scraping, hold: Hold | None, stale_seconds: float) -> Said | None:
    """Condition MetricsAvailable where something keeps decisions from resting on Prometheus; else None."""
    reading = scraping.reading
    if reading is None:
        return Said("Unknown", Reason.NO_DATA_YET, "Prometheus has not answered yet.")
    unusable = reading.trouble is not None and reading.trouble.reason is Reason.SERIES_UNUSABLE
    if hold is None and not unusable:
        return None
    if reading.trouble is not None:
        return _held(reading.trouble.reason, reading.trouble.message)
    if scraping.ahead:
        return _held(
            Reason.SERIES_UNUSABLE, "samples are from the future: the clock of Prometheus or of the operator is wrong"
        )
    if hold is Hold.INSUFFICIENT_COVERAGE:
        return _held(Reason.INSUFFICIENT_COVERAGE, "Prometheus has recent samples of fewer than half of the routers")
    return _held(
        Reason.SERIES_STALE,
        f"the newest sample of a router is older than {stale_seconds:.0f} s: is it still scraped, and often enough?",
    )


def _held(reason: Reason, message: str) -> Said:
    """A message that begins with an address stays as it is."""
    start = message if message.startswith("http") else message[:1].upper() + message[1:]
    end = " The" if message.endswith("?") else "; the"
    return Said("False", reason, f"{start}{end} last decision holds.")


def _after(samples: Sequence[RouterSample], last: RouterSample | None, since: float) -> list[RouterSample]:
    """Samples later than `last`; without one, those from `since` on and the one before, which is the base."""
    if last is not None:
        return [sample for sample in samples if sample.at > last.at]
    before = [sample for sample in samples if sample.at < since][-1:]
    return [*before, *(sample for sample in samples if sample.at >= since)]
