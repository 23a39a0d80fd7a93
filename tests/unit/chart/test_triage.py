"""The page for whoever is paged names only what exists: series, labels, fields of the log, commands, options."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase
from typer.main import get_command

from specfleet.cli.main import COMMANDS, app
from specfleet.metrics.own import OperatorMetrics
from specfleet.routing.accesslog import access_loggers
from tests.unit.chart.helm import REPOSITORY

PAGE = (REPOSITORY / "docs/operations/triage.md").read_text()
BASH = "\n".join(re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
INLINE = [text.replace(r"\|", "|") for text in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE)]
QUERIES = [
    *"".join(re.findall(r"^```promql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)).splitlines(),
    *(text for text in INLINE if re.search(r"specfleet_\w+", text) and re.search(r"[({]", text)),
]
LOG_FIELDS = set(access_loggers()[0]["typed_config"]["log_format"]["json_format"])


def own_series() -> dict[str, set[str]]:
    """The operator's series and their labels."""
    metrics = OperatorMetrics()
    found = {}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            for suffix in ("", "_total", "_bucket", "_sum", "_count"):
                found[family.name + suffix] = {*metric._labelnames, "le"}
    return found


def router_series() -> dict[str, set[str]]:
    """The routers' counters and gauges as they are kept, and their labels."""
    found: dict[str, set[str]] = {"specfleet_active": {"route", "pool"}, "specfleet_router_uptime": set()}
    for logger in access_loggers():
        for counter in logger["typed_config"].get("counters", ()):
            found["specfleet_" + counter["stat"]["name"]] = {tag["name"] for tag in counter["stat"]["tags"]}
    # What the scrape adds.
    return {name: labels | {"namespace", "pod", "specfleet_dev_deployment"} for name, labels in found.items()}


SERIES = own_series() | router_series()


@pytest.mark.parametrize("query", QUERIES)
def test_series_and_labels_of_queries_exist(query: str) -> None:
    names = re.findall(r"\b(specfleet_\w+)(?!\w)(?!=)", re.sub(r"specfleet_dev_deployment=", "", query))
    assert names
    for name in names:
        assert name in SERIES, query
    allowed = set().union(*(SERIES[name] for name in names))
    told = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)
    grouped = [label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")]
    assert set(told) | set(grouped) <= allowed, query


def test_there_are_queries_and_they_name_what_the_page_promises() -> None:
    text = "\n".join(QUERIES)
    for series in ("specfleet_requests", "specfleet_stream_ttft", "specfleet_stream_decode_us", "specfleet_active"):
        assert series in text


def test_fields_that_are_taken_from_the_log_are_in_it() -> None:
    programs = re.findall(r"jq -\w+ '([^']*)'", BASH)
    assert len(programs) == 4
    for program in programs:
        assert set(re.findall(r"\.([a-zA-Z]+)", program)) <= LOG_FIELDS
        (shown,) = re.findall(r"\{([\w, ]+)\}", program) or [""]
        assert set(filter(None, shown.split(", "))) <= LOG_FIELDS
    named = {text for text in INLINE if re.fullmatch(r"[a-z]+[A-Z]\w+|host|tenant|details|attempts|pool|flags", text)}
    assert {"host", "tenant", "details", "attempts"} <= named & LOG_FIELDS


def commands() -> list[str]:
    """Every command line of ours in the page, whole."""
    lines = [line for line in BASH.splitlines() if line.startswith("specfleet ")]
    return [*lines, *(text.split(", or ")[0] for text in INLINE if re.match(r"specfleet [a-z]+ ", text))]


@pytest.mark.parametrize("line", commands())
def test_our_commands_and_their_options_exist(line: str) -> None:
    _, name, *rest = shlex.split(line)
    assert name in COMMANDS
    group: Any = get_command(app)
    # Raises where an argument or an option is none of the command's.
    group.get_command(None, name).make_context(name, rest)


def test_a_dozen_commands_of_ours_are_named() -> None:
    assert len(commands()) > 10
    assert {line.split()[1] for line in commands()} >= {"doctor", "explain", "off", "on", "auto", "replay"}


def test_events_that_are_called_ours_are_posted() -> None:
    source = (REPOSITORY / "operator/specfleet/handlers/telling.py").read_text()
    (sentence,) = re.findall(r"^Events (.*) are ours\.", PAGE, re.MULTILINE)
    named = re.findall(r"`(\w+)`", sentence)
    assert [name for name in named if f'"{name}"' not in source] == []
    assert len(named) == 5


def test_kubectl_is_asked_for_objects_as_they_are_rendered() -> None:
    labels = set(re.findall(r"(app\.kubernetes\.io/\w+)=", BASH))
    rendered = (REPOSITORY / "operator/specfleet/api/names.py").read_text()
    assert [label for label in labels if f'"{label}"' not in rendered] == []
    assert "deployment/assistant-baseline" in BASH
