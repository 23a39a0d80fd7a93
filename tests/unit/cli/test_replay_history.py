"""`specfleet replay --prometheus` against a real Prometheus with a history, and against servers that are none."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from specfleet.cli.history.times import shown
from specfleet.cli.main import app
from tests.testbed.prometheus_server import PrometheusServer
from tests.unit.cli.recording import BREAK_EVEN, History, blind, engines, operated, others, seldom, stored
from tests.unit.handlers.samples import owner, spec_of

HOURS = 10
POLICY = {"initial": "Speculative", "breakEven": {"source": "Fixed", "tokensPerStep": str(BREAK_EVEN)}}
DEPLOYMENT = owner(policy=POLICY)
# Tokens per step, from that second on: chat stops paying in the fourth hour and pays again from the seventh.
QUALITY = {
    "code": [(0.0, 2.5)],
    "chat": [(0.0, 2.2), (3.0 * 3600, 1.1), (6.0 * 3600, 2.2)],
}


class Recorded:
    """A Prometheus with a history: from `begin`, a whole hour of today or yesterday, for ten hours."""

    def __init__(self, directory: Path) -> None:
        self.begin = (time.time() // 3600.0 - HOURS - 1) * 3600.0
        self.end = self.begin + HOURS * 3600.0
        self.history: History = operated(spec_of(DEPLOYMENT), QUALITY, self.begin, HOURS * 3600)
        rest = [
            *others(self.begin, 7200),
            *engines(self.begin, 7200),
            *seldom(self.begin, 36_000),
            *blind(self.begin, 7200),
        ]
        stored(self.history.lines + rest, directory)
        self.server = PrometheusServer(directory).start()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The history is made once for all tests."""
    found = Recorded(tmp_path_factory.mktemp("prometheus"))
    try:
        yield found
    finally:
        found.server.stop()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with `policy.yaml` and `deployment.yaml`."""
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    (tmp_path / "deployment.yaml").write_text(yaml.safe_dump({k: v for k, v in DEPLOYMENT.items() if k != "status"}))
    return tmp_path


def replay(*options: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["replay", *(str(option) for option in options)])


def answer(*options: object) -> dict[str, Any]:
    """Its JSON."""
    result = replay(*options, "--output", "json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def asked(recorded: Recorded, files: Path, deployment: str = "serving/assistant", hours: float = HOURS) -> list[Any]:
    """The usual options."""
    return [
        *("--prometheus", recorded.server.url, "--deployment", deployment, "--policy", files / "policy.yaml"),
        *("--start", shown(recorded.begin), "--end", shown(recorded.begin + hours * 3600.0)),
    ]


@pytest.fixture(scope="module")
def usual_answer(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The whole history under the policy that the operator had."""
    folder = tmp_path_factory.mktemp("policy")
    (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    return answer(*asked(recorded, folder))


def route(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["routes"] if one["route"] == name)
    return found


def test_it_says_in_advance_what_the_operator_then_did(recorded: Recorded, usual_answer: dict[str, Any]) -> None:
    """The same switches, at most a block apart, over a restart of a router and ten minutes without a scrape."""
    document = usual_answer
    did = [(at, pool) for at, pool in recorded.history.switches["chat"] if at > recorded.begin + 60.0]
    said = route(document, "chat")["switches"]
    assert [one["pool"] for one in said] == [pool for _, pool in did] == ["baseline", "speculative"]
    for one, (at, _) in zip(said, did, strict=True):
        assert abs(datetime.fromisoformat(one["at"]).timestamp() - at) <= 60.0
    assert route(document, "code")["switches"] == []
    really = route(document, "chat")["done"]["switches"]
    assert [one["pool"] for one in really] == ["baseline", "speculative"]
    assert document["dropped"]["Gap"] == 2


def test_it_tells_the_time_per_token_against_each_alternative(usual_answer: dict[str, Any]) -> None:
    times = route(usual_answer, "chat")["timePerToken"]
    # Both pools served in the hours around the time that it was off. Baseline takes 10 ms, always.
    assert times["milliseconds"]["alwaysOff"] == "10.000"
    assert float(times["breakEven"]) == pytest.approx(BREAK_EVEN, abs=0.03)
    assert times["hoursCompared"] < times["hoursWithTraffic"] == HOURS
    assert float(times["milliseconds"]["policy"]) < float(times["milliseconds"]["alwaysOn"])
    assert float(times["milliseconds"]["policy"]) == pytest.approx(float(times["milliseconds"]["done"]), rel=0.02)


def test_a_route_that_was_never_off_has_no_saving_and_says_so(usual_answer: dict[str, Any]) -> None:
    code = route(usual_answer, "code")
    assert code["timePerToken"] is None
    assert any("the baseline pool served none of it" in note for note in code["notes"])


def test_the_policy_of_a_specdeployment_is_taken_by_route(recorded: Recorded, files: Path) -> None:
    manifest = yaml.safe_load((files / "deployment.yaml").read_text())
    manifest["spec"]["routing"]["routes"][0]["speculation"] = "Never"
    (files / "deployment.yaml").write_text(yaml.safe_dump(manifest))
    usual = asked(recorded, files)
    document = answer(*usual[:2], "-f", files / "deployment.yaml", *usual[6:])
    assert route(document, "code")["offPercent"] == 100
    assert len(route(document, "chat")["switches"]) == 2


def test_a_line_that_is_measured_is_read_off_the_history(recorded: Recorded, files: Path) -> None:
    """Unknown until baseline has served, then what the fleet was made with; chat goes off by it and comes back."""
    policy = {"initial": "Speculative", "breakEven": {"source": "Measured"}}
    (files / "policy.yaml").write_text(yaml.safe_dump(policy))
    chat = route(answer(*asked(recorded, files)), "chat")
    off, on = chat["switches"]
    assert (off["pool"], off["reason"], on["pool"]) == ("baseline", "BelowBreakEven", "speculative")
    really = [datetime.fromisoformat(one["at"]).timestamp() for one in chat["done"]["switches"]]
    assert really[0] + 1500.0 < datetime.fromisoformat(off["at"]).timestamp() < really[1]
    measured = float(off["message"].split("; ")[1].split(" ")[0])
    assert measured == pytest.approx(BREAK_EVEN, rel=0.03)
    early = answer(*asked(recorded, files, hours=2.0))
    assert all(one["last"]["reason"] == "BreakEvenUnknown" for one in early["routes"])
    assert any("the break-even line could not be measured" in note for note in route(early, "code")["notes"])


def test_people_get_tables_and_a_picture(recorded: Recorded, files: Path) -> None:
    result = replay(*asked(recorded, files), "--plot", files / "replay.png")
    assert result.exit_code == 0, result.output
    assert "gone off" in result.stdout
    assert "always off" in result.stdout
    assert "really went off (most of its requests)" in result.stdout
    assert (files / "replay.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_without_a_router_the_engines_own_counters_are_one_route(recorded: Recorded, files: Path) -> None:
    document = answer(*asked(recorded, files, "plain/llm", hours=2))
    assert document["series"] == "engines"
    assert document["pods"] == {"llm-6c5b-bbbbb": ["baseline"], "llm-spec-7d9f-aaaaa": ["speculative"]}
    [one] = document["routes"]
    assert (one["route"], one["tokensPerStep"], one["acceptancePercent"]) == ("all", "2.00", 25)
    assert one["timePerToken"]["milliseconds"] == {
        "policy": "8.000",
        "alwaysOn": "8.000",
        "alwaysOff": "10.000",
        "done": "9.000",
    }


@pytest.mark.parametrize(
    ("deployment", "said"),
    [
        ("plain/dull", "none of them counted a draft: acceptance is recorded only where vLLM runs with --speculative"),
        ("plain/grove.v1", "only SGLang's own series were recorded, which count no accepted tokens"),
    ],
)
def test_engines_that_recorded_no_acceptance_are_told_what_to_switch_on(
    recorded: Recorded, files: Path, deployment: str, said: str
) -> None:
    result = replay(*asked(recorded, files, deployment, hours=2))
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())


def test_a_deployment_that_is_not_there_is_answered_with_those_that_are(recorded: Recorded, files: Path) -> None:
    result = replay(*asked(recorded, files, "serving/asistant"))
    assert result.exit_code == 1
    assert "no series of serving/asistant" in result.output
    assert "routers' of blind/blind, rare/seldom, serving/assistant" in result.output
    assert "vLLM's of the pods plain/dull-aaaaa, plain/llm-6c5b-bbbbb, plain/llm-spec-7d9f-aaaaa" in result.output


def test_where_nothing_was_recorded_it_says_what_to_switch_on(recorded: Recorded, files: Path) -> None:
    usual = asked(recorded, files)
    before = shown(recorded.begin - 86_400.0), shown(recorded.begin - 7200.0)
    result = replay(*usual[:6], "--start", before[0], "--end", before[1])
    assert result.exit_code == 1
    assert "recorded nothing of serving/assistant" in result.output
    assert "port 9902 (path /stats/prometheus)" in result.output


def test_answers_without_figures_name_the_engines_flag(recorded: Recorded, files: Path) -> None:
    [one] = answer(*asked(recorded, files, "blind/blind", hours=2))["routes"]
    assert one["measuredRequests"] == 0
    assert any("--per-request-spec-decode-metrics summary" in note for note in one["notes"])


def test_series_that_are_scraped_too_seldom_ask_for_longer_blocks(recorded: Recorded, files: Path) -> None:
    usual = asked(recorded, files, "rare/seldom")
    result = replay(*usual)
    assert result.exit_code == 1
    assert "a sample every 300 s" in result.output
    assert "--block 300s" in result.output
    [one] = answer(*usual, "--block", "300s")["routes"]
    assert one["tokensPerStep"] == "2.00"


# --- options that cannot be used


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--start", "365d"], "at most 31 days in one replay, found 365: replay one month after the other"),
        (["--start", "1h", "--end", "2h"], "expected --start before --end"),
        (["--end", "2199-01-01T00:00:00Z"], "lies in the future"),
        (["--start", "last week"], "--start: expected a time such as"),
        (["--start", "2m"], "at least 5 blocks of 60 s"),
        (["--deployment", "assistant"], "expected --deployment NAMESPACE/NAME, found assistant"),
        (["--block", "soon"], "--block: expected a duration"),
        (["--prometheus", "prometheus:9090"], "expected a URL such as http://prometheus:9090"),
        (["--prometheus", "http://me:secret@prometheus:9090"], "credentials go into --bearer-token-file"),
        (["--username", "me"], "--username and --password-file together"),
        (["--plot", "replay.svg"], "--plot writes PNG"),
        (["--selector", "serving"], "--selector: expected label matchers"),
    ],
)
def test_options_that_cannot_be_used_are_answered_before_anything_is_asked(
    files: Path, options: list[str], said: str
) -> None:
    usual = ["--prometheus", "http://127.0.0.1:1", "--deployment", "a/b", "--policy", files / "policy.yaml"]
    result = replay(*usual, *options)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_picture_needs_its_library(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    usual = ["--prometheus", "http://127.0.0.1:1", "--deployment", "a/b", "--policy", files / "policy.yaml"]
    result = replay(*usual, "--plot", files / "replay.png")
    assert result.exit_code == 2
    assert "pip install 'specfleet[plot]'" in result.output


def test_a_policy_without_a_line_is_refused(files: Path) -> None:
    (files / "policy.yaml").write_text("enforcement: Observe\n")
    result = replay("--prometheus", "http://127.0.0.1:1", "--deployment", "a/b", "--policy", files / "policy.yaml")
    assert result.exit_code == 2
    assert "the policy sets no line to decide by" in result.output


# --- servers that do not answer as Prometheus does


@contextmanager
def server(respond: Any) -> Iterator[str]:
    """A real HTTP server; `respond(handler)` answers each GET."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            respond(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_address[1]}"
        finally:
            running.shutdown()


def respond(handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/json") -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (
            401,
            b"",
            "text/plain",
            "answers 401: it asks for credentials, or for others than these; give --bearer-token-file",
        ),
        (403, b"no", "text/plain", "answers 403"),
        (503, b"overloaded", "text/plain", "answers 503"),
        (200, b"<html>sign in</html>", "text/html", "found HTML"),
        (200, EMPTY, "application/json", "recorded nothing of a/b"),
    ],
)
def test_a_server_that_does_not_answer_is_told_in_one_sentence(
    files: Path, status: int, body: bytes, kind: str, said: str
) -> None:
    with server(lambda handler: respond(handler, status, body, kind)) as url:
        result = replay("--prometheus", url, "--deployment", "a/b", "--policy", files / "policy.yaml")
    assert result.exit_code == 1
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_server_that_never_ends_its_answer_is_left(files: Path) -> None:
    end = threading.Event()
    with server(lambda handler: end.wait(30.0)) as url:
        usual = ("--prometheus", url, "--deployment", "a/b", "--policy", files / "policy.yaml")
        result = replay(*usual, "--timeout", 1)
        end.set()
    assert result.exit_code == 1
    assert "does not answer within 1 s" in result.output


def test_a_server_that_asks_for_a_name_and_gets_it_answers(
    recorded: Recorded, files: Path, usual_answer: dict[str, Any]
) -> None:
    """Basic auth, and a limit on what one query may load: asked again for less, until it answers."""
    (files / "password").write_text("secret\n")
    refused: list[str] = []

    def guarded(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Authorization") != "Basic bWU6c2VjcmV0":
            respond(handler, 401, b"")
            return
        length = re.search(r"%5B([0-9]+)s%5D\+%40", handler.path)
        if length is not None and int(length.group(1)) > 3600:
            refused.append(length.group(1))
            respond(handler, 422, b'{"status":"error","error":"query processing would load too many samples"}')
            return
        with urllib.request.urlopen(recorded.server.url + handler.path, timeout=30) as found:
            respond(handler, 200, found.read())

    with server(guarded) as url:
        usual = asked(recorded, files)
        usual[1] = url
        document = answer(*usual, "--username", "me", "--password-file", files / "password")
    assert refused
    assert document["routes"] == usual_answer["routes"]
