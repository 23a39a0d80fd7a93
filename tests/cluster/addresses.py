"""Loopback addresses of this test process: processes side by side must not meet on them."""

from __future__ import annotations

import os

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
NETWORK = f"127.0.{2 + _WORKER}"
ENGINE_ADDRESS = f"{NETWORK}.254"
"""Where every pod is that is no router."""
