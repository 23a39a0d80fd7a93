"""The filter's pure functions in the interpreter that Envoy has (LuaJIT 2.1), called with and returning bytes."""

from __future__ import annotations

from typing import Any

from lupa import luajit21

from specfleet.routing.files import bootstrap_files


class Filter:
    """filter.lua, loaded once."""

    def __init__(self) -> None:
        # types-lupa knows neither the arguments nor the tables of a runtime that works in bytes.
        runtime: Any = luajit21.LuaRuntime
        self._lua = runtime(encoding=None, unpack_returned_tuples=True)
        self._lua.execute(bootstrap_files()["filter.lua"].encode())
        self._own: Any = self._lua.globals()[b"specfleet"]

    def classify(
        self,
        body: bytes,
        path: str = "/v1/chat/completions",
        *,
        refused: tuple[str, ...] = ("min_p", "logit_bias"),
        aliases: tuple[str, ...] = (),
        served: str = "assistant",
    ) -> dict[str, Any]:
        """What the request is: Lua's table as a dict, texts as str, the changed body as bytes."""
        fleet = self._lua.table_from(
            {
                b"refused": self._lua.table_from([name.encode() for name in refused]),
                b"aliases": self._lua.table_from({name.encode(): True for name in aliases}),
                b"served": served.encode(),
            }
        )
        found = {key.decode(): value for key, value in self._own[b"classify"](body, path.encode(), fleet).items()}
        return {
            key: value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) and key != "body" else value
            for key, value in found.items()
        }

    def stream(self, chunks: list[bytes], *, hide: bool) -> tuple[list[bytes], dict[str, int], bytes]:
        """What goes out for each chunk, the figures read, and what is held back at the end."""
        state = self._own[b"new_stream"](hide)
        out = []
        for chunk in chunks:
            passed = self._own[b"stream_step"](state, chunk)
            out.append(chunk if passed is None else passed)
        figures = state[b"figures"]
        return out, {key.decode(): value for key, value in figures.items()} if figures else {}, state[b"rest"]

    def figures(self, answer: bytes) -> dict[str, int] | None:
        """The figures of a whole answer."""
        keys = self._own[b"object"](answer)
        members = keys[0] if isinstance(keys, tuple) else keys
        if members is None:
            return None
        found = self._own[b"figures"](answer, members)
        return None if found is None else {key.decode(): value for key, value in found.items()}

    def upper_bound(self, bounds: str, number: float) -> str:
        """The label of a number in one of the filter's lists of bounds."""
        label: bytes = self._own[b"upper_bound"](self._own[bounds.encode()], number)
        return label.decode()

    def bounds(self, name: str) -> list[int]:
        """One of the filter's lists of bounds."""
        return [int(bound) for bound in self._own[name.encode()].values()]
