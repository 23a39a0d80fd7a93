"""What benchmarks on the whole node have in common: how a run ends."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from tests.node.install import Say
from tests.node.kube import KubeError
from tests.testbed import api


def concluded(
    measure: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace, say: Say
) -> dict[str, Any] | None:
    """What `measure` found, written to `options.out`; None, and told, where it could not be set up or run."""
    try:
        result = measure(options)
    except (api.TestbedError, KubeError) as error:
        say(error.report() if isinstance(error, api.TestbedError) else str(error))
        return None
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    return result
