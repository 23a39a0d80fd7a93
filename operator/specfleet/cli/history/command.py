"""From the options of `specfleet replay --prometheus` to a replay, and out with it."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import Progress

from specfleet.api import offline
from specfleet.api.base import DNS_LABEL, duration
from specfleet.api.v1alpha1 import KIND, SpecDeployment
from specfleet.cli.documents import InputProblem, display_name, read_documents, read_text
from specfleet.cli.history import plot as plots
from specfleet.cli.history.request import HistoryProblem, Request
from specfleet.cli.history.show import document, printed
from specfleet.cli.history.times import TimeProblem, bounded, moment
from specfleet.cli.replay import PolicyError, read_policy
from specfleet.cli.replay_history import failure, replayed
from specfleet.decision.policy import route_config
from specfleet.decision.types import Pool, RouteConfig
from specfleet.handlers.decide import configs
from specfleet.metrics.promapi import Credentials, Endpoint, PrometheusError

DEFAULT_DRAFT_TOKENS = 4
_LIMIT_BYTES = 256 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # a Deployment's may hold dots


@dataclass(frozen=True)
class Given:
    """The options as they were typed."""

    prometheus: str
    deployment: str | None
    filename: str | None
    policy: Path | None
    draft_tokens: int | None
    start: str
    end: str
    block: str | None
    engine_series: bool
    selector: str | None
    as_json: bool
    plot: Path | None
    bearer_token_file: Path | None
    username: str | None
    password_file: Path | None
    ca_file: Path | None
    timeout_seconds: float


class UsageProblem(ValueError):
    """An option cannot be used; the text says what was expected."""


def history_command(given: Given) -> None:
    """Replay and print. Ends the program with 2 where an option is wrong, with 1 where there is nothing to replay."""
    try:
        request = requested(given, time.time())
        if given.plot is not None:
            plots.check(given.plot)
    except (UsageProblem, TimeProblem, PolicyError, InputProblem, plots.PlotProblem) as problem:
        _end(str(problem), 2)
    try:
        with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as shown:
            task = shown.add_task("reading", total=request.end - request.start)
            result = replayed(request, lambda until: shown.update(task, completed=until - request.start))
    except HistoryProblem as problem:
        _end(str(problem), 1)
    except PrometheusError as error:
        _end(failure(error, request.endpoint), 1)
    if given.as_json:
        typer.echo(json.dumps(document(result), indent=2))
    else:
        printed(result)
    if given.plot is not None:
        try:
            plots.plotted(result, given.plot)
        except OSError as error:
            _end(f"cannot write {given.plot}: {error.strerror or error}", 1)


def requested(given: Given, now: float) -> Request:
    """The request that the options make.

    Raises:
        UsageProblem, TimeProblem, PolicyError, InputProblem: an option, or a file that it names, cannot be used.
    """
    spec, own_name = _deployment(given) if given.filename is not None else (None, None)
    namespace, name = _named(given.deployment or own_name)
    config_of, block_seconds = _policy(given, spec)
    if given.block is not None:
        try:
            block_seconds = duration(given.block).total_seconds()
        except ValueError as error:
            raise UsageProblem(f"--block: {error}") from None
        if not 1.0 <= block_seconds <= 3600.0:
            raise UsageProblem(f"--block: expected 1s to 1h, found {given.block}")
    start, end = moment(given.start, "--start", now), moment(given.end, "--end", now)
    start, end = bounded(start, end, block_seconds, now)
    return Request(
        endpoint=_endpoint(given),
        namespace=namespace,
        name=name,
        start=start,
        end=end,
        block_seconds=block_seconds,
        config_of=config_of,
        engine_series=given.engine_series,
        selector=_matchers(given.selector),
        replicas=_replicas(spec),
    )


def _deployment(given: Given) -> tuple[SpecDeployment, str]:
    """The SpecDeployment of -f: the one that --deployment names, or the only one."""
    read = read_documents(read_text(given.filename or "-"))
    if read.findings:
        raise UsageProblem(f"{given.filename}: {read.findings[0].message}")
    found = {display_name(one): one for one in read.documents}
    wanted = given.deployment
    if wanted is not None and wanted not in found:
        # A manifest may leave the namespace to kubectl.
        wanted = wanted.rpartition("/")[2]
    if wanted is None and len(found) == 1:
        wanted = next(iter(found))
    if wanted is None or wanted not in found:
        there = ", ".join(found) or "none"
        raise UsageProblem(f"{given.filename}: expected the {KIND} of --deployment, found {there}")
    deployment, findings = offline.parse(found[wanted])
    if deployment is None:
        raise UsageProblem(f"{given.filename}: {findings[0].path}: {findings[0].message}")
    return deployment, wanted


def _named(text: str | None) -> tuple[str, str]:
    namespace, slash, name = (text or "").partition("/")
    if not slash or not re.fullmatch(DNS_LABEL, namespace) or not _NAME.fullmatch(name):
        raise UsageProblem(f"expected --deployment NAMESPACE/NAME, found {text or 'nothing'}")
    return namespace, name


def _policy(given: Given, spec: SpecDeployment | None) -> tuple[Callable[[str], RouteConfig], float]:
    """The policy of each route, and the length of a block. --policy goes before the one in -f."""
    if given.policy is None and spec is None:
        raise UsageProblem(
            "expected a policy to try: --policy FILE with the fields of spec.policy, or -f SPECDEPLOYMENT"
        )
    known: dict[str, RouteConfig] = {}
    if given.policy is not None:
        try:
            policy = read_policy(given.policy.read_text(encoding="utf-8"))
        except PolicyError as error:
            raise UsageProblem(f"{given.policy}: {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageProblem(f"cannot read {given.policy}: {error}") from None
        general = route_config(policy, draft_tokens=_tokens(given, spec))
    else:
        assert spec is not None
        general = route_config(spec.spec.policy, draft_tokens=_tokens(given, spec))
        known = {name: replace(one, draft_tokens=general.draft_tokens) for name, one in configs(spec.spec).items()}
    every = [general, *known.values()]
    if not any(one.has_line for one in every):
        raise UsageProblem(
            "the policy sets no line to decide by: write minAcceptancePercent: 50, or breakEven: {source: Measured}"
        )
    return lambda route: known.get(route, general), general.block_seconds


def _replicas(spec: SpecDeployment | None) -> dict[Pool, int]:
    """Of the SpecDeployment in -f; one each where it is not known."""
    pools = None if spec is None or spec.spec.external is not None else spec.spec.pools
    if pools is None:
        return {"baseline": 1, "speculative": 1}
    return {"baseline": max(1, pools.baseline_replicas), "speculative": max(1, pools.speculative_replicas)}


def _tokens(given: Given, spec: SpecDeployment | None) -> int:
    if given.draft_tokens is not None:
        return given.draft_tokens
    return DEFAULT_DRAFT_TOKENS if spec is None else spec.spec.draft.tokens


def _endpoint(given: Given) -> Endpoint:
    url = given.prometheus.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageProblem(f"--prometheus: expected a URL such as http://prometheus:9090, found {given.prometheus}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageProblem(
            "--prometheus: expected an address alone; credentials go into --bearer-token-file, or --username and "
            "--password-file"
        )
    if (given.username is None) != (given.password_file is None):
        raise UsageProblem("expected --username and --password-file together")
    if given.username is not None and given.bearer_token_file is not None:
        raise UsageProblem("expected --bearer-token-file, or --username and --password-file; found both")
    credentials = Credentials(
        bearer_token_file=given.bearer_token_file,
        username=given.username,
        password_file=given.password_file,
        ca_file=given.ca_file,
    )
    return Endpoint(url, credentials, given.timeout_seconds, _LIMIT_BYTES)


def _matchers(text: str | None) -> str | None:
    if text is None:
        return None
    inner = text.strip().removeprefix("{").removesuffix("}").strip().rstrip(",")
    if "=" not in inner or "{" in re.sub(r'"[^"]*"', "", inner):
        raise UsageProblem(
            f'--selector: expected label matchers such as namespace="serving",pod=~"llm.*", found {text}'
        )
    return inner


def _end(sentence: str, status: int) -> NoReturn:
    typer.echo(f"specfleet replay: {sentence}", err=True)
    raise typer.Exit(status)
