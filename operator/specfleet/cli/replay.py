"""`specfleet replay`: what the rule would have decided, line by line, on recorded or simulated counts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
import yaml

from specfleet.api import offline
from specfleet.api.findings import Finding
from specfleet.api.v1alpha1 import API_VERSION, KIND, Policy
from specfleet.decision.policy import route_config
from specfleet.decision.rule import Block, RouteConfig, RouteState, Verdict, start, step
from specfleet.decision.state import MAX_TIME

COUNTS = ("tokens", "accepted", "drafted", "requests")
MAX_COUNT = 2**53
MAX_DRAFT_TOKENS = 32
_GAP_BLOCKS = 1.5
_SHOWN = 60


class Output(StrEnum):
    """How to print a replay of a recorded history."""

    TABLE = "table"
    JSON = "json"


class PolicyError(ValueError):
    """The policy cannot be used; the message says what was expected and what to write."""


class LineError(ValueError):
    """A line cannot be used; `t` is its time where that could be read."""

    def __init__(self, text: str, t: float | None = None) -> None:
        super().__init__(text)
        self.t = t


def replay(lines: Iterable[str], policy_text: str, draft_tokens: int) -> Iterator[str]:
    """One JSON answer for each of `lines`, each before the next line is asked for.

    `policy_text` is the YAML of `spec.policy`, `draft_tokens` is k. Raises PolicyError at once where the policy cannot
    be used. Nothing in `lines` raises: a bad line is answered with `t` and `error` and counts as a gap.
    """
    if not 1 <= draft_tokens <= MAX_DRAFT_TOKENS:
        raise PolicyError(f"--draft-tokens must be 1 to {MAX_DRAFT_TOKENS}, found {draft_tokens}")
    config = route_config(read_policy(policy_text), draft_tokens=draft_tokens)
    if config.certainty is not None:
        raise PolicyError(
            "breakEven {source: Measured} needs the times of both pools, and lines of counts hold none: write "
            'breakEven {source: Fixed, tokensPerStep: "1.60"}, or replay a history with --prometheus'
        )
    return _answers(lines, config)


def read_policy(text: str) -> Policy:
    """The policy in `text`, checked as the API server would. Raises PolicyError."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise PolicyError(f"the policy is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise PolicyError(f"expected the fields of spec.policy, for instance minAcceptancePercent: 40; found {found}")
    for wrapper in ("spec", "policy"):
        if wrapper in document:
            raise PolicyError(
                f"expected the fields of spec.policy themselves: write what stands under {wrapper}: alone"
            )
    # Around the policy stands the least SpecDeployment, so that the schema and its rules stay in one place.
    deployment, findings = offline.parse({**_AROUND, "spec": {**_AROUND["spec"], "policy": document}})
    if deployment is None:
        raise PolicyError("; ".join(_said(finding) for finding in findings))
    return deployment.spec.policy


_AROUND: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "replay"},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "any/model"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 2},
    },
}


def _said(finding: Finding) -> str:
    path = finding.path.removeprefix("spec.policy").lstrip(".")
    return f"{path}: {finding.message}" if path else finding.message


def _answers(lines: Iterable[str], config: RouteConfig) -> Iterator[str]:
    state: RouteState | None = None
    last: float | None = None
    for text in lines:
        try:
            t, block = _block(text, last, state, config)
        except LineError as error:
            yield json.dumps({"t": error.t, "error": str(error)})
            continue
        if state is None:
            state = start(config, max(0.0, t - config.block_seconds))
        state, verdict = step(state, config, block, t)
        last = t
        yield json.dumps(_answer(block.at, verdict))


def _block(text: str, last: float | None, state: RouteState | None, config: RouteConfig) -> tuple[float, Block]:
    record = _record(text)
    t = _time(record)
    if last is not None and t <= last:
        raise LineError(f"expected t to rise from line to line, found {_short(t)} after {_short(last)}", t)
    counts = {name: _count(record, name, t) for name in COUNTS}
    if counts["accepted"] > counts["drafted"]:
        raise LineError(f"accepted ({counts['accepted']}) is more than drafted ({counts['drafted']})", t)
    if counts["accepted"] > counts["tokens"]:
        raise LineError(f"accepted ({counts['accepted']}) is more than tokens ({counts['tokens']})", t)
    percent = state.percent if state is not None else _first_percent(config)
    seconds = config.block_seconds
    if last is not None and t - last <= _GAP_BLOCKS * seconds:
        seconds = t - last
    return t, Block(at=t, share=percent / 100.0, seconds=seconds, **counts)


def _first_percent(config: RouteConfig) -> int:
    """The share that the traffic before the first answer is taken to have had."""
    return 100 if config.initial == "speculative" else config.exploration_max_percent if config.enforce else 0


def _record(text: str) -> dict[str, Any]:
    if not text.strip():
        raise LineError("expected a JSON object, found an empty line")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LineError(f"expected a JSON object: {error}") from None
    if not isinstance(record, dict):
        raise LineError(f"expected a JSON object, found {_short(record)}")
    return record


def _time(record: dict[str, Any]) -> float:
    if "t" not in record:
        raise LineError("t is missing: expected seconds")
    t = record["t"]
    if isinstance(t, bool) or not isinstance(t, int | float):
        raise LineError(f"expected t in seconds, found {_short(t)}")
    if isinstance(t, float) and not math.isfinite(t):
        raise LineError(f"expected t in seconds, found {t}")
    if not 0 <= t <= MAX_TIME:
        raise LineError(f"expected t in seconds from 0 to {MAX_TIME:.0f}, found {_short(t)}")
    return t


def _count(record: dict[str, Any], name: str, t: float) -> int:
    if name not in record:
        raise LineError(f"{name} is missing: expected a whole number, 0 or more", t)
    value = record[name]
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or value < 0:
        raise LineError(f"expected {name} to be a whole number, 0 or more; found {_short(value)}", t)
    if value > MAX_COUNT:
        raise LineError(f"expected {name} to be at most 2^53, found {_short(value)}", t)
    return int(value)


def _short(value: Any) -> str:
    try:
        text = json.dumps(value)
    except ValueError:
        return "a number of very many digits"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _answer(t: float, verdict: Verdict) -> dict[str, Any]:
    shown = verdict.evidence
    evidence = None
    if shown is not None:
        evidence = {
            "line": shown.line,
            "score": f"{shown.score:.1f}",
            "threshold": f"{shown.threshold:.1f}",
            "requests": shown.requests,
        }
    steps = verdict.tokens_per_step
    return {
        "t": t,
        "pool": verdict.pool,
        "phase": verdict.phase.value,
        "speculativePercent": verdict.speculative_percent,
        "tokensPerStep": None if steps is None else f"{steps:.2f}",
        "evidence": evidence,
        "reason": verdict.reason.value,
    }


def replay_command(
    file: Annotated[
        Path | None,
        typer.Argument(help="JSON lines to replay; without it, or as -, standard input.", show_default=False),
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", help="YAML file with the fields of spec.policy.")] = None,
    draft_tokens: Annotated[
        int | None,
        typer.Option(
            "--draft-tokens",
            min=1,
            max=MAX_DRAFT_TOKENS,
            help="k, the tokens drafted a round. Default: the draft's, else 4.",
        ),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Replay what this Prometheus server recorded, such as http://prometheus:9090.")
    ] = None,
    deployment: Annotated[
        str | None, typer.Option(metavar="NS/NAME", help="Whose history. Default: that of the SpecDeployment in -f.")
    ] = None,
    filename: Annotated[
        str | None,
        typer.Option("--filename", "-f", help="A SpecDeployment, for its policy; - is standard input."),
    ] = None,
    start: Annotated[str, typer.Option(help="From when on: RFC 3339, or how long ago, such as 7d.")] = "24h",
    end: Annotated[str, typer.Option(help="Until when: the same, or now.")] = "now",
    block: Annotated[str | None, typer.Option(help="Length of a block, such as 60s. Default: the policy's.")] = None,
    engine_series: Annotated[
        bool, typer.Option("--engine-series", help="Read vLLM's own counters, as one route, though a router has some.")
    ] = False,
    selector: Annotated[
        str | None,
        typer.Option(help='PromQL label matchers instead of those by name: \'namespace="serving",pod=~"llm.*"\'.'),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Tables, or JSON for programs.")] = Output.TABLE,
    plot: Annotated[Path | None, typer.Option(help="Also draw it into this PNG file.")] = None,
    bearer_token_file: Annotated[Path | None, typer.Option(help="File with a bearer token for Prometheus.")] = None,
    username: Annotated[str | None, typer.Option(help="Name for basic auth.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="File with the password for basic auth.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificate authorities to trust instead of the usual.")] = None,
    timeout: Annotated[float, typer.Option(min=1.0, max=600.0, help="Seconds for one query.")] = 60.0,
) -> None:
    """Show what the rule would have decided, on lines of counts or on a recorded history.

    With --prometheus: on what that server recorded of a deployment's routers (or of its vLLM engines), by route, with
    the time per token that it would have saved against always-on, always-off and what was really done.

    Without: on lines from FILE, each {"t": seconds, "tokens": n, "accepted": n, "drafted": n, "requests": n}: what one
    route did in the speculative pool during the block that ends at t. Each is answered at once, so a program can feed
    this in a loop.
    """
    if prometheus is None:
        given = (deployment, filename, block, selector, plot, bearer_token_file, username, password_file, ca_file)
        if any(one is not None for one in given) or engine_series:
            _end("these options are of a recorded history: give --prometheus URL too")
        if policy is None:
            _end("expected --policy FILE with the fields of spec.policy, or --prometheus URL for a recorded history")
        _lines_command(policy, file, 4 if draft_tokens is None else draft_tokens)
        return
    if file is not None:
        _end("expected lines of counts or --prometheus, found both")
    # Imported where it is used: the libraries behind it cost a second.
    from specfleet.cli.history.command import Given, history_command

    history_command(
        Given(
            prometheus,
            deployment,
            filename,
            policy,
            draft_tokens,
            start,
            end,
            block,
            engine_series,
            selector,
            output == Output.JSON,
            plot,
            bearer_token_file,
            username,
            password_file,
            ca_file,
            timeout,
        )
    )


def _end(sentence: str) -> NoReturn:
    typer.echo(f"specfleet replay: {sentence}", err=True)
    raise typer.Exit(2)


def _lines_command(policy: Path, file: Path | None, draft_tokens: int) -> None:
    try:
        lines = _opened(file)
        answers = replay(lines, policy.read_text(encoding="utf-8"), draft_tokens)
    except PolicyError as error:
        typer.echo(f"{policy}: {error}", err=True)
        raise typer.Exit(2) from None
    except (OSError, UnicodeDecodeError) as error:
        typer.echo(f"cannot read: {error}", err=True)
        raise typer.Exit(2) from None
    with lines:
        _write(answers)


def _opened(file: Path | None) -> TextIO:
    if file is None or str(file) == "-":
        # A byte that is no UTF-8 spoils its own line, not the run.
        return open(sys.stdin.fileno(), encoding="utf-8-sig", errors="replace", closefd=False)
    return file.open(encoding="utf-8-sig", errors="replace")


def _write(answers: Iterator[str]) -> None:
    try:
        for answer in answers:
            print(answer, flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: nothing is left to say, and no trace of it either
        raise typer.Exit(0) from None
