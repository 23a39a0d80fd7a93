"""HMAC-SHA-256 in Lua against Python's, and the key that it reads."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lupa import luajit21

from specfleet.routing.files import bootstrap_files


class Hasher:
    """The router's Lua with a clock that a test sets."""

    def __init__(self) -> None:
        runtime: Any = luajit21.LuaRuntime
        self._lua = runtime(encoding=None, unpack_returned_tuples=True)
        self._lua.execute(bootstrap_files()["filter.lua"].encode())
        self.own: Any = self._lua.globals()[b"specfleet"]
        self.at(0)

    def at(self, seconds: int) -> None:
        """Set the clock."""
        self._lua.execute(b"os.time = function() return %d end" % seconds)

    def __call__(self, path: Path, prompt: bytes) -> Any:
        return self.own[b"prompt_hash"](str(path).encode(), prompt)


HASHER = Hasher()


def python_hmac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).hexdigest().encode()


# RFC 4231, test cases 1 to 4, 6 and 7.
VECTORS = [
    (b"\x0b" * 20, b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
    (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
    (b"\xaa" * 20, b"\xdd" * 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
    (bytes(range(1, 26)), b"\xcd" * 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
    (
        b"\xaa" * 131,
        b"Test Using Larger Than Block-Size Key - Hash Key First",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    (
        b"\xaa" * 131,
        b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
        b"hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
    ),
]


@pytest.mark.parametrize(("key", "text", "digest"), VECTORS)
def test_the_standards_own_vectors(key: bytes, text: bytes, digest: str) -> None:
    assert HASHER.own[b"hmac"](key, text).decode() == digest


@pytest.mark.parametrize("length", [0, 1, 54, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 1 << 16])
def test_every_way_to_fill_the_last_block(length: int) -> None:
    text = bytes(i % 251 for i in range(length))
    assert HASHER.own[b"hmac"](b"k" * 32, text) == python_hmac(b"k" * 32, text)


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=400))
def test_any_key_and_text(key: bytes, text: bytes) -> None:
    assert HASHER.own[b"hmac"](key, text) == python_hmac(key, text)


def test_a_renewed_key_is_used_within_a_minute_and_told_apart(tmp_path: Path) -> None:
    hasher, file = Hasher(), tmp_path / "key"
    old, new = b"o" * 32, b"n" * 32
    file.write_bytes(old)
    before = hasher(file, b"[]")
    assert before == python_hmac(old, b"key")[:8] + b":" + python_hmac(old, b"[]")
    file.write_bytes(new)
    hasher.at(59)
    assert hasher(file, b"[]") == before
    hasher.at(60)
    assert hasher(file, b"[]") == python_hmac(new, b"key")[:8] + b":" + python_hmac(new, b"[]")
    # A clock that was set back does not keep an old key.
    file.write_bytes(old)
    hasher.at(10)
    assert hasher(file, b"[]") == before


@pytest.mark.parametrize("content", [None, b"", b"short" * 6])
def test_a_key_that_is_missing_or_short_is_not_used_and_said_once_a_minute(
    tmp_path: Path, content: bytes | None
) -> None:
    hasher, file = Hasher(), tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    hash_, problem = hasher(file, b"[]")
    assert hash_ is None
    assert str(file) in problem.decode()
    assert hasher(file, b"[]") is None or hasher(file, b"[]") == (None, None)
    hasher.at(60)
    assert hasher(file, b"[]")[1] == problem
