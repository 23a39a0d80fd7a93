"""Writes the pages of TensorRT-LLM: `python -m tests.unit.metrics.record_trtllm`.

Its module needs CUDA, and no package index has it. So the series are declared here as the repository's
`tensorrt_llm/metrics/collector.py` declares them: name, kind, labels and order. They are moved as its
`log_request_metrics_dict` (when a request ends), `log_iteration_stats` (with each iteration) and `log_config_info`
(once) move them; help texts are left out.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PAGES = Path(__file__).with_name("pages")
LABELS = {"model_name": "assistant", "engine_type": "trtllm"}
REQUEST_SECONDS = (
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "request_queue_time_seconds",
)
ITERATION_GAUGES = (
    "num_requests_running",
    "num_requests_waiting",
    "max_num_active_requests",
    "iteration_latency_seconds",
    "max_batch_size_static",
    "kv_cache_max_blocks",
    "kv_cache_used_blocks",
    "num_generation_requests",
    "avg_decoded_tokens_per_iter",
)


class Pages:
    """One engine process, of the time before the counters (`counts` False) or after."""

    def __init__(self, *, counts: bool, speculative: bool) -> None:
        self.registry = CollectorRegistry()
        self.counts = counts
        self.success = self._counter("request_success_total", "finished_reason")
        self.seconds = [self._histogram(name) for name in REQUEST_SECONDS]
        if not counts:
            return
        self.prompt = self._counter("prompt_tokens_total")
        self.generated = self._counter("generation_tokens_total")
        self.gauges = {name: self._gauge(name) for name in ITERATION_GAUGES}
        self.completed = self._counter("num_requests_completed_total")
        self.drafted = self._counter("spec_decode_num_draft_tokens_total")
        self.accepted = self._counter("spec_decode_num_accepted_tokens_total")
        self.length = self._gauge("spec_decode_acceptance_length")
        self.drafted_at = self._counter("spec_decode_drafted_tokens_total", "token_position")
        self.accepted_at = self._counter("spec_decode_accepted_tokens_total", "token_position")
        config = {"spec_enabled": str(speculative)}
        if speculative:
            config |= {"spec_method": "Eagle3", "spec_num_tokens": "4", "spec_draft_model": "owner/head"}
        info = Gauge("trtllm_speculative_config_info", "-", [*LABELS, *config], registry=self.registry)
        info.labels(**LABELS, **config).set(1)

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(f"trtllm_{name}", "-", [*LABELS, *labels], registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        return Gauge(f"trtllm_{name}", "-", [*LABELS], registry=self.registry)

    def _histogram(self, name: str) -> Histogram:
        return Histogram(f"trtllm_{name}", "-", [*LABELS], buckets=[0.1, 1.0, 10.0], registry=self.registry)

    def iterate(self, *, drafted: int, accepted: int, running: int = 1) -> None:
        """One iteration's statistics; counters move only by what is above 0."""
        for name, gauge in self.gauges.items():
            gauge.labels(**LABELS).set(running if name == "num_requests_running" else 0)
        if drafted > 0:
            self.drafted.labels(**LABELS).inc(drafted)
        if accepted > 0:
            self.accepted.labels(**LABELS).inc(accepted)
        if drafted > 0:
            self.length.labels(**LABELS).set(1 + accepted)

    def finish(self, *, tokens: int, drafted: int = 0, accepted: int = 0, reason: str = "stop") -> None:
        """One request has ended."""
        self.success.labels(**LABELS, finished_reason=reason).inc()
        for histogram in self.seconds:
            histogram.labels(**LABELS).observe(0.5)
        if self.counts:
            self.prompt.labels(**LABELS).inc(10)
            self.generated.labels(**LABELS).inc(tokens)
            self.completed.labels(**LABELS).inc()
            for position in range(1 if drafted else 0):
                self.drafted_at.labels(**LABELS, token_position=position).inc(drafted)
                self.accepted_at.labels(**LABELS, token_position=position).inc(accepted)

    def text(self) -> str:
        """The page, without the times of creation, which differ with each run."""
        lines = generate_latest(self.registry).decode().splitlines()
        return "\n".join(line for line in lines if "_created" not in line) + "\n"


def speculating() -> Pages:
    """20 requests of 41 tokens: 800 decode tokens in 320 iterations of 4 drafted tokens, of which 480 are accepted."""
    page = Pages(counts=True, speculative=True)
    for _ in range(320):
        page.iterate(drafted=4, accepted=0)
    page.accepted.labels(**LABELS).inc(480)
    for _ in range(20):
        page.finish(tokens=41, drafted=64, accepted=24)
    page.iterate(drafted=0, accepted=0, running=0)
    return page


def recorded() -> dict[str, str]:
    """All pages, by name."""
    fresh = Pages(counts=True, speculative=True)
    plain = Pages(counts=True, speculative=False)
    plain.iterate(drafted=0, accepted=0)
    plain.finish(tokens=41)
    before = Pages(counts=False, speculative=True)
    before.finish(tokens=41)
    return {
        "trtllm-speculating": speculating().text(),
        "trtllm-fresh": fresh.text(),
        "trtllm-baseline": plain.text(),
        "trtllm-before-counters": before.text(),
    }


if __name__ == "__main__":
    for name, text in recorded().items():
        (PAGES / f"{name}.txt").write_text(text)
