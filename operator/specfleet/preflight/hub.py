"""Model files on the Hugging Face Hub, or a server that speaks like it: small files whole, of weights the headers.

Nothing is executed or unpickled. What was read of a commit is kept in a directory, if one is given.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import requests

from specfleet.preflight.bounded import MOST_INDEX_BYTES, FileProblem, parse_object
from specfleet.preflight.reading import InaccessibleError
from specfleet.preflight.request import ModelRef

ENDPOINT = "https://huggingface.co"
MOST_SECONDS = 240.0
CONNECT_SECONDS, SILENT_SECONDS = 10.0, 20.0
_CHUNK = 64 * 1024
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")


class _Bearer(requests.auth.AuthBase):
    """The token for the Hub alone: requests drops it where a redirect leads to another host. A netrc is not asked."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class HubSource:
    """One model at one revision.

    Args:
        token: None to ask without.
        cache: a directory that keeps files by model and commit; None keeps nothing.
        endpoint: of the Hub.
        seconds: for everything that is read of this model.
    """

    def __init__(
        self,
        ref: ModelRef,
        role: str,
        token: str | None = None,
        cache: Path | None = None,
        endpoint: str = ENDPOINT,
        seconds: float = MOST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ref, self._what, self._token = ref, f"the {role} {ref.model}", token
        self._endpoint = endpoint.rstrip("/")
        self._cache = cache
        self._clock, self._end, self._seconds = clock, clock() + seconds, seconds
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        self._session.max_redirects = 5
        # Compressed answers could be much larger than they look.
        self._session.headers.update({"Accept-Encoding": "identity", "User-Agent": "specfleet-preflight"})
        self._commit: str | None = None
        self._names: frozenset[str] | None = None

    @property
    def commit(self) -> str | None:
        """Of the revision, once `names` was asked."""
        return self._commit

    def names(self) -> frozenset[str]:
        """Files at the top of the repository."""
        if self._names is None:
            revision = self._ref.revision or "main"
            pinned = revision if _COMMIT.fullmatch(revision) else None
            path = f"/api/models/{self._ref.model}/revision/{revision.replace('/', '%2F')}"
            data = self._cached(pinned, "@repository", lambda: self._get(path, 0, MOST_INDEX_BYTES + 1))
            answer = parse_object(data, f"the Hub's answer about {self._what}", MOST_INDEX_BYTES)
            commit, siblings = answer.get("sha"), answer.get("siblings")
            if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or not isinstance(siblings, list):
                raise InaccessibleError(f"{self._endpoint} answers about {self._what} in a way that no Hub does")
            files = [one.get("rfilename") for one in siblings if isinstance(one, dict)]
            self._commit = commit
            self._names = frozenset(name for name in files if isinstance(name, str) and _PLAIN_NAME.fullmatch(name))
        return self._names

    def read(self, name: str, most_bytes: int) -> bytes:
        """A whole file."""
        data = self._cached(self._commit, name, lambda: self._get(self._path(name), 0, most_bytes + 1))
        if len(data) > most_bytes:
            raise FileProblem(f"{name} of {self._what} is larger than {most_bytes} bytes: is it the right file?")
        return data

    def piece(self, name: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`, by a range request."""
        return self._cached(
            self._commit, f"{name}@{start}+{length}", lambda: self._get(self._path(name), start, length, ranged=True)
        )

    def _path(self, name: str) -> str:
        return f"/{self._ref.model}/resolve/{self._commit}/{name}"

    # --- the cache

    def _cached(self, commit: str | None, name: str, fetch: Callable[[], bytes]) -> bytes:
        if self._cache is None or commit is None:
            return fetch()
        model = hashlib.sha256(f"{self._endpoint}\0{self._ref.model}".encode()).hexdigest()[:24]
        path = self._cache / model / commit / name
        try:
            return path.read_bytes()
        except OSError:
            data = fetch()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            part.write_bytes(data)
            part.replace(path)
        except OSError:
            return data  # a cache that cannot be written costs time alone
        return data

    # --- the network

    def _get(self, path: str, start: int, length: int, *, ranged: bool = False) -> bytes:
        headers = {"Range": f"bytes={start}-{start + length - 1}"} if ranged else {}
        try:
            with self._session.get(
                self._endpoint + path, headers=headers, stream=True, timeout=(CONNECT_SECONDS, SILENT_SECONDS)
            ) as answer:
                if answer.status_code >= 400:
                    raise InaccessibleError(self._refusal(answer))
                skip = start if ranged and answer.status_code != 206 else 0
                return self._body(answer, skip, length)
        except requests.RequestException as problem:
            raise InaccessibleError(
                f"the Hub at {self._endpoint} cannot be reached for {self._what} ({type(problem).__name__}): check the "
                "network, a proxy (HTTPS_PROXY), or HF_ENDPOINT"
            ) from None

    def _body(self, answer: requests.Response, skip: int, length: int) -> bytes:
        """At most `length` bytes behind the first `skip`; what a server sends beyond is not read."""
        if skip > _CHUNK:
            raise InaccessibleError(f"the Hub at {self._endpoint} sends no ranges of files")
        found = bytearray()
        for chunk in answer.iter_content(_CHUNK):
            found += chunk
            if self._clock() > self._end:
                raise InaccessibleError(f"reading {self._what} took longer than {self._seconds:.0f} s")
            if len(found) >= skip + length:
                break
        return bytes(found[skip : skip + length])

    def _refusal(self, answer: requests.Response) -> str:
        code, status = answer.headers.get("X-Error-Code", ""), answer.status_code
        if code == "GatedRepo" or (status == 403 and self._token):
            how = (
                "the token's account has not been given access: accept the licence on the model's page"
                if self._token
                else "no token was given: accept the licence, and name a token in source.huggingFace.tokenSecretRef"
            )
            return f"{self._what} is gated, and {how}"
        if code == "RevisionNotFound":
            return f"{self._what} has no revision {self._ref.revision or 'main'}: write one that exists"
        if code == "EntryNotFound":
            return f"{self._what} lacks a file that its list of files names"
        if status == 401 and self._token and code != "RepoNotFound":
            return f"the Hub does not accept the token for {self._what}: it is wrong or expired"
        if status in (401, 403, 404):
            how = (
                "or the token has no access to it"
                if self._token
                else "or it is private: name a token in source.huggingFace.tokenSecretRef"
            )
            return f"the Hub has no model {self._ref.model}, {how}"
        return f"the Hub at {self._endpoint} answers {status} for {self._what}: try again later"
