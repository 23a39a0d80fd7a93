"""`specfleet replay` from a stranger's side: lines in, one answer each, whatever the lines are."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.cli.replay import PolicyError, replay

POLICY = """
initial: Speculative
breakEven: {source: Fixed, tokensPerStep: "1.60"}
"""


def line(t: float, tokens_per_step: float, requests: int = 30, k: int = 4) -> str:
    tokens = 200 * requests
    accepted = round(tokens * (1 - 1 / tokens_per_step))
    drafted = k * (tokens - accepted)
    return json.dumps({"t": t, "tokens": tokens, "accepted": accepted, "drafted": drafted, "requests": requests})


def answers(lines: list[str], policy: str = POLICY, k: int = 4) -> list[dict[str, Any]]:
    return [json.loads(text) for text in replay(lines, policy, k)]


def test_an_answer_has_the_fields_of_the_manual() -> None:
    assert answers([line(60, 2.0)]) == [
        {
            "t": 60,
            "pool": "speculative",
            "phase": "Settled",
            "speculativePercent": 100,
            "tokensPerStep": "2.00",
            "evidence": {"line": "BreakEven", "score": "0.0", "threshold": "9.2", "requests": 0},
            "reason": "Pays",
        }
    ]


def test_the_example_of_the_manual_is_what_it_answers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "replay.md").read_text()
    policy = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    counts, shown = re.findall(r"^```json\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert list(replay(counts.splitlines(), policy[0], 4)) == shown.splitlines()


def test_a_route_that_stops_paying_is_switched_off_and_on_again_in_closed_loop() -> None:
    """Feed the rule what its own answers let through: 300 requests a minute, bad from 0:30 to 2:00."""
    percent, pools = 100, []

    def traffic() -> Iterator[str]:
        for minute in range(1, 241):
            yield line(60.0 * minute, 1.2 if 30 < minute <= 120 else 2.2, requests=3 * percent)

    for text in replay(traffic(), POLICY, 4):
        answer = json.loads(text)
        percent = answer["speculativePercent"]
        pools.append(answer["pool"])
    off, on = pools.index("baseline"), 120 + pools[120:].index("speculative")
    assert 35 <= off + 1 <= 40
    assert 125 <= on + 1 <= 150
    assert pools == ["speculative"] * off + ["baseline"] * (on - off) + ["speculative"] * (240 - on)


def test_lines_hold_no_times_to_measure_a_break_even_line_by() -> None:
    with pytest.raises(PolicyError, match="needs the times of both pools, and lines of counts hold none"):
        replay([], "breakEven: {source: Measured}", 4)


def test_a_gap_keeps_the_decision_and_lets_the_dwell_run() -> None:
    bad = [line(60.0 * minute, 1.1) for minute in range(1, 7)]
    off = answers(bad)[-1]
    assert off["pool"] == "baseline"
    later = answers([*bad, line(60.0 * 600, 1.1)])[-1]
    assert (later["pool"], later["reason"]) == ("baseline", "BelowBreakEven")


def test_a_bad_line_changes_nothing_about_the_others() -> None:
    good = [line(60.0 * minute, 1.1) for minute in range(1, 30)]
    spoilt = [text for one in good for text in (one, "{")]
    assert [a for a in answers(spoilt) if "error" not in a] == answers(good)


@pytest.mark.parametrize(
    ("text", "t", "said"),
    [
        ("", None, "empty line"),
        ("tokens 5", None, "JSON object"),
        ("[1, 2]", None, "JSON object"),
        ("[" * 100_000, None, "JSON object"),
        ("{}", None, "t is missing"),
        ('{"t": "60"}', None, "t in seconds"),
        ('{"t": true}', None, "t in seconds"),
        ('{"t": null}', None, "t in seconds"),
        ('{"t": NaN}', None, "t in seconds"),
        ('{"t": Infinity}', None, "t in seconds"),
        ('{"t": -60}', None, "from 0"),
        ('{"t": 1764400000000}', None, "from 0"),
        ('{"t": 1' + "0" * 400 + "}", None, "from 0"),
        ('{"t": 1' + "0" * 5000 + "}", None, "JSON object"),
        ('{"t": 60}', 60, "tokens is missing"),
        ('{"t": 60, "tokens": -1, "accepted": 0, "drafted": 0, "requests": 0}', 60, "tokens"),
        ('{"t": 60, "tokens": 1.5, "accepted": 0, "drafted": 0, "requests": 0}', 60, "tokens"),
        ('{"t": 60, "tokens": NaN, "accepted": 0, "drafted": 0, "requests": 0}', 60, "tokens"),
        ('{"t": 60, "tokens": 5, "accepted": Infinity, "drafted": 0, "requests": 0}', 60, "accepted"),
        ('{"t": 60, "tokens": 5, "accepted": 0, "drafted": true, "requests": 0}', 60, "drafted"),
        ('{"t": 60, "tokens": 5, "accepted": 0, "drafted": 0, "requests": "3"}', 60, "requests"),
        ('{"t": 60, "tokens": 1e300, "accepted": 0, "drafted": 0, "requests": 0}', 60, "2^53"),
        ('{"t": 60, "tokens": 9, "accepted": 5, "drafted": 4, "requests": 1}', 60, "more than drafted"),
        ('{"t": 60, "tokens": 4, "accepted": 5, "drafted": 9, "requests": 1}', 60, "more than tokens"),
    ],
)
def test_a_line_that_cannot_be_is_answered_with_what_was_expected(text: str, t: float | None, said: str) -> None:
    first, second = answers([text, line(120, 2.0)])
    assert first["t"] == t
    assert said in first["error"]
    assert set(first) == {"t", "error"}
    assert second["pool"] == "speculative"


def test_lines_out_of_order_are_answered_and_left_out() -> None:
    first, again, before, after = answers([line(120, 2.0), line(120, 2.0), line(60, 2.0), line(180, 2.0)])
    assert "rise" in again["error"]
    assert "rise" in before["error"]
    assert (first["t"], after["t"]) == (120, 180)
    assert after["evidence"] == answers([line(120, 2.0), line(180, 2.0)])[-1]["evidence"]


def test_a_minute_without_traffic_is_no_evidence() -> None:
    idle = [f'{{"t": {60 * m}, "tokens": 0, "accepted": 0, "drafted": 0, "requests": 0}}' for m in range(1, 600)]
    last = answers(idle)[-1]
    assert (last["pool"], last["tokensPerStep"], last["reason"]) == ("speculative", None, "NoEvidence")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
records = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("t", "tokens", "accepted", "drafted", "requests"), st.integers(0, 10**6) | json_values)
)


@given(st.lists(st.text() | records.map(json.dumps), max_size=30), st.integers(1, 32))
@settings(max_examples=200, deadline=None)
def test_every_line_gets_one_answer_in_one_line(lines: list[str], k: int) -> None:
    texts = list(replay(lines, POLICY + "minAcceptancePercent: 40\n", k))
    assert len(texts) == len(lines)
    for text in texts:
        assert "\n" not in text
        answer = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert ("error" in answer) != ("pool" in answer)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("", "found nothing"),
        ("- 1", "found list"),
        ("a: [", "no YAML"),
        ("[" * 10_000, "no YAML"),
        ("&a {exploration: *a}", "Circular reference"),
        ("spec: {policy: {}}", "write what stands under spec"),
        ("policy: {minAcceptancePercent: 40}", "write what stands under policy"),
        ("minAcceptance: 40", "did you mean minAcceptancePercent"),
        ("minAcceptancePercent: 0", "minAcceptancePercent"),
        ("minAcceptancePercent: '40'", "found '40'"),
        ("enforcement: Enforced", "enforcement"),
        ("initial: Speculative", "needs a line to decide by"),
        ("breakEven: {source: Fixed}", "tokensPerStep"),
        ("breakEven: {source: Fixed, tokensPerStep: 1.6}", "breakEven.tokensPerStep"),
        ('breakEven: {source: Fixed, tokensPerStep: "0.5"}', "between 1 and 33"),
        ("{minAcceptancePercent: 40, block: 60}", "block"),
        ("{minAcceptancePercent: 40, block: 2h}", "block must be 1s to 1h"),
        ("{minAcceptancePercent: 40, dwell: 48h}", "dwell must be 1s to 24h"),
        ("{minAcceptancePercent: 40, exploration: {maxPercent: 101}}", "exploration.maxPercent"),
    ],
)
def test_a_wrong_policy_is_refused_before_any_line_is_read(policy: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        replay(iter(()), policy, 4)


@pytest.mark.parametrize("k", [0, 33])
def test_k_is_1_to_32(k: int) -> None:
    with pytest.raises(PolicyError, match="1 to 32"):
        replay([], POLICY, k)


def test_the_policys_own_start_and_observe_are_kept() -> None:
    lines = [line(60.0 * minute, 1.1) for minute in range(1, 61)]
    assert {a["pool"] for a in answers(lines, POLICY + "enforcement: Observe\n")} == {"speculative"}
    assert answers([line(60, 1.1)], POLICY.replace("Speculative", "Baseline"))[0]["pool"] == "baseline"


PROGRAM = "import typer; from specfleet.cli.replay import replay_command as c; a = typer.Typer(); a.command()(c); a()"


def run(*arguments: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], input=lines, capture_output=True, timeout=60, check=False
    )


@pytest.fixture
def policy_file(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def test_a_program_can_feed_it_line_by_line(policy_file: str) -> None:
    """Each answer comes before the next line is written, over pipes."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--policy", policy_file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        rng, percent = random.Random(1), 100
        for minute in range(1, 11):
            process.stdin.write(
                line(60 * minute, 1.1, requests=max(3, percent // 3 + rng.randrange(3))).encode() + b"\n"
            )
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["t"] == 60 * minute
            percent = answer["speculativePercent"]
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert answer["pool"] == "baseline"


def test_it_reads_a_file_and_bytes_that_are_no_text(policy_file: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line(60, 2.0).encode() + b"\r\n\xff\xfe\n" + line(120, 2.0).encode())
    done = run(str(path), "--policy", policy_file)
    kinds = ["error" if "error" in json.loads(text) else "answer" for text in done.stdout.splitlines()]
    assert (done.returncode, kinds) == (0, ["answer", "error", "answer"])


@pytest.mark.parametrize("case", ["no such policy", "wrong policy", "no such file", "k"])
def test_what_it_cannot_use_ends_with_2_and_one_clear_line(case: str, policy_file: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("block: soon")
    done = run(
        *{
            "no such policy": ("--policy", str(tmp_path / "none.yaml")),
            "wrong policy": ("--policy", str(wrong)),
            "no such file": (str(tmp_path / "none.jsonl"), "--policy", policy_file),
            "k": ("--policy", policy_file, "--draft-tokens", "0"),
        }[case]
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert done.stderr.strip()
