"""What holds for every history of a route, however odd."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.evidence import MIN_REQUESTS, THRESHOLD
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block, Room, RouteConfig, RouteState, Verdict, decode, dwell_end, start, step

BEGIN = 1_764_400_000.0

configs = st.builds(
    RouteConfig,
    initial=st.sampled_from(["speculative", "baseline"]),
    enforce=st.booleans(),
    override=st.sampled_from(["Auto", "Auto", "Auto", "Always", "Never"]),
    draft_tokens=st.integers(1, 8),
    min_acceptance_percent=st.none() | st.integers(1, 100),
    break_even=st.none() | st.floats(1.0, 4.0),
    block_seconds=st.sampled_from([5.0, 60.0]),
    dwell_seconds=st.sampled_from([10.0, 600.0]),
    exploration_max_percent=st.integers(0, 100),
)


@st.composite
def counts(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Decode tokens, accepted, drafted, requests of a block; each can be none."""
    tokens = draw(st.integers(0, 100_000))
    accepted = draw(st.integers(0, tokens))
    return tokens, accepted, draw(st.integers(accepted, accepted + 100_000)), draw(st.integers(0, 500))


events = st.tuples(
    st.none() | counts(),
    st.sampled_from([0.0, 5.0, 60.0, 61.3, 1000.0, 90_000.0, -100.0]),
    st.sampled_from([None, None, None, *Hold]),
    st.sampled_from([None, None, Room(to_baseline=False), Room(to_speculation=False)]),
)
histories = st.lists(events, min_size=1, max_size=60)
Event = tuple[tuple[int, int, int, int] | None, float, Hold | None, Room | None]


def play(
    state: RouteState, config: RouteConfig, history: list[Event], now: float
) -> list[tuple[float, RouteState, Verdict]]:
    """All steps of a history, with the time and the state after each."""
    steps = []
    for numbers, seconds, hold, room in history:
        now += seconds
        block = None if numbers is None else Block(now, *numbers, share=state.percent / 100.0)
        state, verdict = step(state, config, block, now, hold=hold, room=room)
        steps.append((now, state, verdict))
    return steps


@given(configs, histories, histories)
@settings(max_examples=150, deadline=None)
def test_a_decoded_state_has_the_same_future(config: RouteConfig, past: list[Event], future: list[Event]) -> None:
    now, state, _ = play(start(config, BEGIN), config, past, BEGIN)[-1]
    restored = decode(state.encode(), replace(config, initial="baseline"), now)
    assert restored == state
    assert play(restored, config, future, now) == play(state, config, future, now)


@given(configs, histories)
@settings(max_examples=150, deadline=None)
def test_scores_and_shares_stay_in_their_bounds(config: RouteConfig, history: list[Event]) -> None:
    for _, state, verdict in play(start(config, BEGIN), config, history, BEGIN):
        for line in state.lines:
            assert 0.0 <= line.score <= 1.5 * THRESHOLD[state.mode] + 1e-4
            assert 0.05 <= line.variance <= 5.0
            assert len(line.recent) <= 10
        assert 0 <= verdict.speculative_percent <= 100
        if verdict.pool == "baseline":
            assert verdict.speculative_percent <= config.exploration_max_percent
        else:
            assert verdict.speculative_percent > 0 or config.override == "Auto"
        assert len(state.encode()) < 1200


@given(configs, histories)
@settings(max_examples=150, deadline=None)
def test_the_rule_switches_only_on_enough_requests_after_the_dwell(config: RouteConfig, history: list[Event]) -> None:
    config = replace(config, override="Auto")
    state, now = start(config, BEGIN), BEGIN
    for event in history:
        before = state
        [(now, state, verdict)] = play(before, config, [event], now)
        if state.mode != before.mode:
            assert now >= min(
                dwell_end(before, config), dwell_end(replace(before, since=min(before.since, now)), config)
            )
            block = event[0]
            news = block[3] if block is not None else 0
            assert any(line.requests + line.gathered.requests + news >= MIN_REQUESTS for line in before.lines)
        assert verdict.switched == (state.served != before.served)


@given(configs, histories)
@settings(max_examples=100, deadline=None)
def test_observe_never_moves(config: RouteConfig, history: list[Event]) -> None:
    config = replace(config, enforce=False, override="Auto")
    for _, _, verdict in play(start(config, BEGIN), config, history, BEGIN):
        assert verdict.pool == config.initial
        assert verdict.speculative_percent == (100 if config.initial == "speculative" else 0)
        assert not verdict.switched


@given(configs, histories, st.sampled_from(["Always", "Never"]))
@settings(max_examples=100, deadline=None)
def test_a_persons_override_wins_wherever_there_is_room(config: RouteConfig, history: list[Event], word: str) -> None:
    now, state, _ = play(start(config, BEGIN), config, history, BEGIN)[-1]
    forced = replace(config, override=word)  # type: ignore[arg-type]
    for hold in (None, *Hold):
        _, verdict = step(state, forced, None, now, hold=hold)
        assert verdict.pool == ("speculative" if word == "Always" else "baseline")
        assert verdict.speculative_percent == (100 if word == "Always" else 0)


@given(configs, histories)
@settings(max_examples=100, deadline=None)
def test_a_hold_decides_nothing(config: RouteConfig, history: list[Event]) -> None:
    config = replace(config, override="Auto")
    now, state, _ = play(start(config, BEGIN), config, history, BEGIN)[-1]
    block = Block(now + 60.0, 50_000, 0, 200_000, 400, share=1.0)
    for hold in Hold:
        after, verdict = step(state, config, block, now + 60.0, hold=hold)
        assert (after.mode, after.served, after.percent, after.lines) == (
            state.mode,
            state.served,
            state.percent,
            state.lines,
        )
        assert not verdict.switched


@given(st.lists(counts(), min_size=1, max_size=60), st.sampled_from([0.5, 2.0, 4.0]))
@settings(max_examples=100, deadline=None)
def test_a_block_twice_as_long_with_a_dwell_twice_as_long_decides_alike(
    blocks: list[tuple[int, int, int, int]], factor: float
) -> None:
    usual = RouteConfig(initial="speculative", break_even=1.6, min_acceptance_percent=40)
    scaled = replace(usual, block_seconds=60.0 * factor, dwell_seconds=600.0 * factor)

    def modes(config: RouteConfig) -> list[str]:
        history: list[Event] = [(numbers, config.block_seconds, None, None) for numbers in blocks if numbers[3] > 2]
        return [state.mode for _, state, _ in play(start(config, 0.0), config, history, 0.0)]

    assert modes(usual) == modes(scaled)


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode("latin-1")), configs)
def test_any_text_decodes_to_a_state(text: str, config: RouteConfig) -> None:
    assert decode(text, config, BEGIN) == start(config, BEGIN)
