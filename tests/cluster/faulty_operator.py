"""The operator, made to die at its n-th write after a file has appeared: `faulty_operator.py FILE N before|after ...`.

Where the file holds a text, the first write that counts is one that holds it too. `before` dies with the request
unsent, `after` with the answer unread. Everything else is the operator as it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import typer

from specfleet.cli.run import run_command
from specfleet.cluster.client import ApiClient

EXIT = 86


def _arm(armed: str, nth: int, moment: str) -> None:
    send = ApiClient._send
    writes = 0

    def due(method: str, path: str, data: bytes | None) -> bool:
        nonlocal writes
        if method == "GET" or "/leases" in path or not os.path.exists(armed):
            return False
        if writes == 0 and Path(armed).read_bytes() not in (data or b""):
            return False
        writes += 1
        return writes == nth

    async def counted(
        self: ApiClient, method: str, path: str, params: dict[str, str], data: bytes | None, *rest: Any
    ) -> Any:
        fatal = due(method, path, data)
        if fatal and moment == "before":
            os._exit(EXIT)
        answer = await send(self, method, path, params, data, *rest)
        if fatal:
            os._exit(EXIT)
        return answer

    ApiClient._send = counted  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _arm(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    sys.argv[1:4] = []
    typer.run(run_command)
