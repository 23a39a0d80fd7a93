"""The Hub, played by a small HTTP server: what is asked of it, and how its refusals are told apart."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from specfleet.api.v1alpha1 import DraftMode
from specfleet.preflight.bounded import MOST_CONFIG_BYTES, FileProblem
from specfleet.preflight.hub import HubSource
from specfleet.preflight.job import opener
from specfleet.preflight.reading import InaccessibleError, run_preflight
from specfleet.preflight.request import ModelRef
from specfleet.preflight.verdict import Outcome
from tests.unit.preflight.models import request, tokenizer, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REF = ModelRef("team/target")


class Hub:
    """Repositories by name, from directories; `refuse` may answer a path with a status and an error code."""

    def __init__(self) -> None:
        self.repositories: dict[str, Path] = {}
        self.refuse: Callable[[str, str | None], tuple[int, str] | None] = lambda path, token: None
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.redirect: str | None = None
        self.ranges = True
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        token, wanted = handler.headers.get("Authorization"), handler.headers.get("Range")
        self.asked.append((handler.path, token, wanted))
        refused = self.refuse(handler.path, token)
        if refused is not None:
            handler.send_response(refused[0])
            handler.send_header("X-Error-Code", refused[1])
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if handler.path.startswith("/api/models/"):
            owner, name = handler.path.split("/")[3:5]
            files = sorted(path.name for path in self.repositories[f"{owner}/{name}"].iterdir())
            body = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}).encode()
            self._send(handler, 200, body)
            return
        _, owner, name, _, _, file = handler.path.split("/")
        if self.redirect is not None:
            handler.send_response(302)
            handler.send_header("Location", f"{self.redirect}{handler.path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        data = (self.repositories[f"{owner}/{name}"] / file).read_bytes()
        if wanted is not None and self.ranges:
            start, end = wanted.removeprefix("bytes=").split("-")
            self._send(handler, 206, data[int(start) : int(end) + 1])
        else:
            self._send(handler, 200, data)

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        try:
            handler.wfile.write(body)
        except OSError:
            handler.close_connection = True  # the reader has what it wanted


@pytest.fixture
def hub() -> Iterator[Hub]:
    one = Hub()
    yield one
    one.server.shutdown()
    one.server.server_close()


def _source(hub: Hub, token: str | None = None, cache: Path | None = None, ref: ModelRef = REF) -> HubSource:
    return HubSource(ref, "target", token, cache, hub.endpoint)


def test_a_pair_on_the_hub_and_the_weights_are_not_read(hub: Hub, tmp_path: Path) -> None:
    hub.repositories = {
        "team/target": write(tmp_path / "target", None, tokenizer(), {"big": [512, 512]}),
        "team/draft": write(tmp_path / "draft", None, None, {"fc.weight": [64, 128]}),
    }
    found = run_preflight(request(DraftMode.EAGLE), opener({"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "secret"}))
    assert found.findings == ()
    asked = [path.rsplit("/", 1)[1] for path, _, _ in hub.asked]
    assert asked.count("model.safetensors") == 4
    assert all(token == "Bearer secret" for _, token, _ in hub.asked)
    ranges = [str(wanted) for path, _, wanted in hub.asked if path.endswith(".safetensors")]
    assert [one.startswith("bytes=8-") for one in ranges] == [False, True, False, True], "the headers alone"
    assert ranges[0] == ranges[2] == "bytes=0-7"
    assert found.weight_mebibytes == 0, "known, and small"


def test_a_server_without_ranges_serves_too(hub: Hub, tmp_path: Path) -> None:
    hub.ranges = False
    hub.repositories = {
        "team/target": write(tmp_path / "target", None, tokenizer()),
        "team/draft": write(tmp_path / "draft", None, None, {"fc.weight": [64, 128]}),
    }
    asked = request(DraftMode.EAGLE)
    assert run_preflight(asked, opener({"HF_ENDPOINT": hub.endpoint})).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("status", "code", "token", "said"),
    [
        (401, "GatedRepo", None, "is gated, and no token was given"),
        (403, "GatedRepo", "t", "is gated, and the token's account has not been given access"),
        (401, "RepoNotFound", None, "no model team/target, or it is private: name a token"),
        (404, "RepoNotFound", "t", "no model team/target, or the token has no access"),
        (401, "", "t", "does not accept the token"),
        (404, "RevisionNotFound", None, "no revision main"),
        (429, "", None, "answers 429"),
        (503, "", None, "answers 503"),
    ],
)
def test_refusals_are_told_apart(hub: Hub, status: int, code: str, token: str | None, said: str) -> None:
    hub.refuse = lambda path, token: (status, code)
    with pytest.raises(InaccessibleError, match="target") as caught:
        _source(hub, token).names()
    assert said in str(caught.value)


def test_nobody_there() -> None:
    source = HubSource(REF, "target", endpoint="http://127.0.0.1:9")
    with pytest.raises(InaccessibleError, match=r"cannot be reached .*HTTPS_PROXY"):
        source.names()


def test_what_was_read_of_a_commit_is_read_once(hub: Hub, tmp_path: Path) -> None:
    hub.repositories = {"team/target": write(tmp_path / "target", None, tokenizer())}
    ref = ModelRef("team/target", COMMIT)
    for _ in range(2):
        source = _source(hub, cache=tmp_path / "cache", ref=ref)
        assert "config.json" in source.names()
        assert json.loads(source.read("config.json", MOST_CONFIG_BYTES))["model_type"] == "llama"
    assert len(hub.asked) == 2
    # A branch can move: who it is is asked again, and files of the same commit are not.
    _source(hub, cache=tmp_path / "cache").names()
    assert len(hub.asked) == 3


def test_the_token_does_not_follow_to_another_host(hub: Hub, tmp_path: Path) -> None:
    elsewhere = Hub()
    hub.repositories = elsewhere.repositories = {"team/target": write(tmp_path / "target", None, tokenizer())}
    hub.redirect = elsewhere.endpoint.replace("127.0.0.1", "localhost")
    source = _source(hub, "secret")
    source.names()
    source.read("config.json", MOST_CONFIG_BYTES)
    elsewhere.server.shutdown()
    elsewhere.server.server_close()
    assert [token for _, token, _ in elsewhere.asked] == [None]


def test_a_file_larger_than_any_should_be_is_not_read_to_its_end(hub: Hub, tmp_path: Path) -> None:
    hub.repositories = {"team/target": write(tmp_path / "target", b"x" * (3 * MOST_CONFIG_BYTES))}
    source = _source(hub)
    source.names()
    with pytest.raises(FileProblem, match="larger than 1048576 bytes"):
        source.read("config.json", MOST_CONFIG_BYTES)


def test_time_is_limited(hub: Hub, tmp_path: Path) -> None:
    hub.repositories = {"team/target": write(tmp_path / "target", None, tokenizer())}
    times = iter([0.0, 1.0, 1000.0])
    source = HubSource(REF, "target", endpoint=hub.endpoint, seconds=60.0, clock=lambda: next(times))
    source.names()
    with pytest.raises(InaccessibleError, match="longer than 60 s"):
        source.read("config.json", MOST_CONFIG_BYTES)
