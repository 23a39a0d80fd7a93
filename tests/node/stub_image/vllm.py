"""`vllm serve MODEL ...` of the stub image: reads the flags that specfleet renders and serves at the stub's pace.

The pace comes by environment, as a pool's `engine.env`: STUB_STEP_MS, STUB_PREFILL_MS, STUB_ACCEPTANCE; or by curves,
of which the pool takes its own (STUB_CURVES: {"speculative": [[RUNNING, MS], ...], "baseline": ...}), and by the value
of a header (STUB_ACCEPTANCE_OF: {"HEADER=VALUE": RATE, ...}).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from tests.stub import engine


def stub_arguments(arguments: Sequence[str]) -> list[str]:
    """The stub's command line for one of vLLM's; flags that the stub has no use for are passed over."""
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", default="8000")
    parser.add_argument("--max-num-seqs", default="256")
    parser.add_argument("--speculative-config", type=json.loads, default={})
    parser.add_argument("--shutdown-timeout", default="60")
    given, _ = parser.parse_known_args(list(arguments))
    draft_tokens = given.speculative_config.get("num_speculative_tokens", 0)
    curves = json.loads(os.environ.get("STUB_CURVES", "{}"))
    curve = curves.get("speculative" if draft_tokens else "baseline")
    rates = json.loads(os.environ.get("STUB_ACCEPTANCE_OF", "{}"))
    return [
        *([f"--step-curve={json.dumps(curve)}"] if curve else []),
        *(f"--acceptance-of={header}:{rate}" for header, rate in rates.items()),
        f"--host={given.host}",
        f"--port={given.port}",
        f"--model={given.served_model_name or given.model}",
        f"--max-num-seqs={given.max_num_seqs}",
        f"--draft-tokens={draft_tokens}",
        f"--drain-seconds={given.shutdown_timeout}",
        f"--step-ms={os.environ.get('STUB_STEP_MS', '20')}",
        f"--prefill-ms={os.environ.get('STUB_PREFILL_MS', '20')}",
        f"--acceptance={os.environ.get('STUB_ACCEPTANCE', '0.6')}",
    ]


if __name__ == "__main__":
    sys.argv = ["engine", *stub_arguments(sys.argv[1:])]
    engine.main()
