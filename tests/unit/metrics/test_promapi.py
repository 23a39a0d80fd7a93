"""What each answer of a Prometheus server, good or bad, comes to; and where credentials go."""

from __future__ import annotations

import gzip
import subprocess
import time
from pathlib import Path

import pytest

from specfleet.api.conditions import Reason
from specfleet.metrics.promapi import Credentials, Endpoint, PromApi, PrometheusError
from tests.unit.metrics.answers import Answers, Send, document, dripping, plain, router, slow

HTML = b"<!DOCTYPE html><title>Sign in</title>"
ERROR = b'{"status":"error","errorType":"bad_data","error":"parse error at char 3"}'


def asked(endpoint: Endpoint) -> int:
    """How many series one query gets."""
    with PromApi(endpoint) as api:
        return len(api.query("up[1m]"))


def refused(endpoint: Endpoint) -> tuple[Reason, str]:
    """Reason and sentence of a query that fails."""
    with pytest.raises(PrometheusError) as problem:
        asked(endpoint)
    return problem.value.reason, str(problem.value)


@pytest.mark.parametrize(
    ("send", "reason", "words"),
    [
        (plain(b"", 401), Reason.PROMETHEUS_UNAUTHORIZED, "answers 401: it asks for credentials"),
        (plain(HTML, 403, "text/html"), Reason.PROMETHEUS_UNAUTHORIZED, "answers 403"),
        (plain(b"busy", 503, "text/plain"), Reason.PROMETHEUS_FAILED, "answers 503"),
        (plain(ERROR, 400), Reason.PROMETHEUS_FAILED, "answers 400"),
        (plain(b"", 302, Location="http://127.0.0.1:1/"), Reason.PROMETHEUS_FAILED, "302, a redirect"),
        (plain(HTML, 200, "text/html"), Reason.PROMETHEUS_FAILED, "expected the JSON of a Prometheus API"),
        (plain(HTML, 200, "text/html"), Reason.PROMETHEUS_FAILED, "found HTML"),
        (plain(b"", 200), Reason.PROMETHEUS_FAILED, "found something else"),
        (plain(b'{"status":"success","data":'), Reason.PROMETHEUS_FAILED, "found something else"),
        (plain(b"[" * 1900), Reason.PROMETHEUS_FAILED, "found something else"),
        (plain(b'{"status":"success","data":[]}'), Reason.PROMETHEUS_FAILED, "holds no data.result"),
        (plain(document([{"metric": {}, "value": [1, "2"]}])), Reason.PROMETHEUS_FAILED, "expected series with values"),
        (plain(document([], warnings=["a store is down"])), Reason.PROMETHEUS_PARTIAL, "answer is partial"),
        (plain(b"x" * 3000), Reason.PROMETHEUS_FAILED, "longer than 2000 bytes"),
        (
            plain(gzip.compress(b"x" * 5_000_000), Content_Encoding="gzip"),
            Reason.PROMETHEUS_FAILED,
            "longer than 2000 bytes",
        ),
        (plain(b"", 200, Content_Length="50"), Reason.PROMETHEUS_UNREACHABLE, "fails"),
    ],
)
def test_an_answer_that_cannot_be_decided_by_is_named(send: Send, reason: Reason, words: str) -> None:
    with Answers(send) as server:
        found, said = refused(Endpoint(server.url, limit_bytes=2000))

    assert found is reason
    assert words in said
    assert server.url in said


@pytest.mark.parametrize("send", [slow, dripping])
def test_a_slow_answer_ends_after_its_time(send: Send) -> None:
    with Answers(send) as server:
        began = time.monotonic()
        found, said = refused(Endpoint(server.url, timeout_seconds=0.5))

    assert time.monotonic() - began < 2.0
    assert found is Reason.PROMETHEUS_UNREACHABLE
    assert said == f"{server.url} does not answer within 0.5 s"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "refuses the connection"),
        ("http://none.invalid:9090", "cannot be resolved"),
    ],
)
def test_nobody_there_is_named(url: str, words: str) -> None:
    found, said = refused(Endpoint(url, timeout_seconds=3.0))

    assert found is Reason.PROMETHEUS_UNREACHABLE
    assert words in said


def test_a_good_answer_has_its_series_and_the_server_is_told_the_time() -> None:
    with Answers(plain(document(router(1000.0)))) as server:
        assert asked(Endpoint(f"{server.url}/", timeout_seconds=7.0)) == 6

    assert server.seen[0][0] == "up[1m]"


def test_a_token_is_sent_to_the_settings_server_and_read_anew_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with Answers(plain(document([]))) as server:
        for text in ("first\n", "second"):
            token.write_text(text)
            asked(Endpoint(server.url, Credentials(bearer_token_file=token)))

    assert [headers["Authorization"] for _, headers in server.seen] == ["Bearer first", "Bearer second"]


def test_basic_authentication_is_sent(tmp_path: Path) -> None:
    name, password = tmp_path / "name", tmp_path / "password"
    name.write_text("reader\n")
    password.write_text("secret\n")
    with Answers(plain(document([]))) as server:
        asked(Endpoint(server.url, Credentials(username_file=name, password_file=password)))

    assert server.seen[0][1]["Authorization"] == "Basic cmVhZGVyOnNlY3JldA=="


def test_nothing_of_the_environment_is_sent_to_a_server_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login operator password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with Answers(plain(document([]))) as server:
        asked(Endpoint(server.url))

    assert "Authorization" not in server.seen[0][1]


@pytest.mark.parametrize("text", [None, "", "two\nlines", "caf\x00"])
def test_a_credentials_file_that_cannot_be_used_is_named_and_nothing_is_asked(tmp_path: Path, text: str | None) -> None:
    token = tmp_path / "token"
    if text is not None:
        token.write_text(text)
    with Answers(plain(document([]))) as server:
        found, said = refused(Endpoint(server.url, Credentials(bearer_token_file=token)))

    assert found is Reason.PROMETHEUS_UNAUTHORIZED
    assert str(token) in said
    assert server.seen == []


def test_what_a_server_says_is_told_of_the_administrators_only() -> None:
    with Answers(plain(ERROR, 400)) as server:
        _, trusted = refused(Endpoint(server.url, Credentials()))
        _, foreign = refused(Endpoint(server.url))

    assert "parse error at char 3" in trusted
    assert "parse error" not in foreign


def test_a_certificate_is_checked_against_the_ca_file(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", str(pem), "-out", str(tmp_path / "ca.pem")], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "ca.pem").read_text())
    with Answers(plain(document([])), certificate=pem) as server:
        assert asked(Endpoint(server.url, Credentials(ca_file=tmp_path / "ca.pem"))) == 0
        found, said = refused(Endpoint(server.url, Credentials()))
        missing = refused(Endpoint(server.url, Credentials(ca_file=tmp_path / "none.pem")))

    assert found is Reason.PROMETHEUS_UNREACHABLE
    assert "certificate is not trusted" in said
    assert "expected certificates in" in missing[1]
