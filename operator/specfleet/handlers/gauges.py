"""The gauges of one SpecDeployment's routes and pools, from the last pass."""

from __future__ import annotations

from specfleet.handlers.decide import RouteDecision
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key
from specfleet.handlers.view import View
from specfleet.metrics.own import OperatorMetrics


def show(metrics: OperatorMetrics, key: Key, view: View, memory: Memory, now: float) -> None:
    """Set all gauges to what the pass has found."""
    for pool in view.state.pools:
        metrics.pool_ready.labels(*key, pool.name).set(pool.ready)
        metrics.pool_desired.labels(*key, pool.name).set(pool.desired)
    serving = memory.serving(view.state.routers, view.version)
    exploring = {name for name, one in view.decisions.items() if _explores(one)}
    memory.prefill.look(memory.counted, exploring, now)
    for name, decision in view.decisions.items():
        verdict = decision.verdict
        metrics.route_speculative_ratio.labels(*key, name).set(verdict.speculative_percent / 100.0)
        if name in serving.percent:
            metrics.route_served_ratio.labels(*key, name).set(serving.percent[name] / 100.0)
        prefilled = memory.prefill.share(name, view.state.speculative.name) if name in exploring else None
        if prefilled is not None:
            metrics.route_exploring_prompt.labels(*key, name).set(prefilled)
        else:
            metrics.route_exploring_prompt.remove(*key, name)
        if verdict.acceptance_percent is not None:
            metrics.route_acceptance.labels(*key, name).set(verdict.acceptance_percent / 100.0)
        if verdict.tokens_per_step is not None:
            metrics.route_tokens_per_step.labels(*key, name).set(verdict.tokens_per_step)
        line = decision.state.line("BreakEven").value
        if line is not None:
            metrics.route_break_even.labels(*key, name).set(line)
            metrics.route_break_even_known.labels(*key, name).set(decision.config.may_switch_off("BreakEven"))
        else:
            metrics.route_break_even.remove(*key, name)
            metrics.route_break_even_known.remove(*key, name)
        if verdict.evidence is not None:
            metrics.route_score.labels(*key, name, verdict.evidence.line).set(verdict.evidence.score)
            metrics.route_threshold.labels(*key, name, verdict.evidence.line).set(verdict.evidence.threshold)


def _explores(decision: RouteDecision) -> bool:
    return decision.verdict.pool == "baseline" and decision.verdict.speculative_percent > 0
