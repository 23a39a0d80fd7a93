"""Record streams of the real engine for the replay tests: `python -m tests.envoy.record` fills recordings/ beside it.

vLLM 0.32 on CPU serves the small real model with n-gram drafts at temperature 0, first without the per-request figures
(NAME.plain.sse, and NAME.usage.sse where the client asks for usage), then with them (NAME.figures.sse). The first two
are what a client must get through the router; the third is what the engine sends under our flags.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.envoy.harness import LOOPBACK, eventually, free_ports, get
from tests.testbed import api

RECORDINGS = Path(__file__).parent / "recordings"
MODEL = "stub"
SPECULATION = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n"

SCENARIOS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat-code": ("/v1/chat/completions", {"messages": [{"role": "user", "content": CODE}], "max_tokens": 40}),
    "chat-unicode": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "naïve café: \U0001f600 \U0001f680 \U0001f600 \U0001f680 \U0001f600"}
            ],
            "max_tokens": 24,
        },
    ),
    "chat-logprobs": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": CODE}], "max_tokens": 12, "logprobs": True, "top_logprobs": 2},
    ),
    "chat-quotes": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": '{"usage": {"a": 1}, "choices": []}\n{"usage": {"a": 2}, '}],
            "max_tokens": 32,
        },
    ),
    "completion-code": ("/v1/completions", {"prompt": CODE, "max_tokens": 32}),
    "completion-stop": ("/v1/completions", {"prompt": CODE, "max_tokens": 60, "stop": ["def"]}),
}


@contextmanager
def engine(*flags: str, host: str = LOOPBACK, port: int | None = None, log: IO[bytes] | None = None) -> Iterator[str]:
    """A running engine's address; what it says goes to `log`, else to where our own errors go."""
    port = port or free_ports(1)[0]
    command = [str(api.vllm_python()), "-m", "vllm.entrypoints.cli.main", "serve", str(api.model_dir())]
    command += ["--served-model-name", MODEL, "--host", host, "--port", str(port), "--enforce-eager"]
    command += ["--max-model-len", "1024", "--max-num-seqs", "4", "--gpu-memory-utilization", "0.3"]
    command += ["--speculative-config", json.dumps(SPECULATION), *flags]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    process = subprocess.Popen(command, env=environment, stdout=log or sys.stderr, stderr=log)
    url = f"http://{host}:{port}"
    try:
        eventually("the engine is ready", lambda: process.poll() is not None or get(f"{url}/health")[0] == 200, 400)
        if process.poll() is not None:
            raise SystemExit(f"the engine ended with {process.returncode}; its own words are above")
        yield url
    finally:
        process.terminate()
        process.wait(60)


def ask(url: str, path: str, body: dict[str, Any]) -> bytes:
    """The raw answer."""
    data = json.dumps({"model": MODEL, "temperature": 0, "seed": 7, **body}).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        raw: bytes = answer.read()
        return raw


def main() -> None:
    """Record every scenario."""
    RECORDINGS.mkdir(exist_ok=True)
    usage = {"stream_options": {"include_usage": True}}
    with engine() as url:
        for name, (path, body) in SCENARIOS.items():
            (RECORDINGS / f"{name}.plain.sse").write_bytes(ask(url, path, {**body, "stream": True}))
            (RECORDINGS / f"{name}.usage.sse").write_bytes(ask(url, path, {**body, "stream": True, **usage}))
            (RECORDINGS / f"{name}.plain.json").write_bytes(ask(url, path, body))
    with engine("--per-request-spec-decode-metrics", "summary") as url:
        for name, (path, body) in SCENARIOS.items():
            (RECORDINGS / f"{name}.figures.sse").write_bytes(ask(url, path, {**body, "stream": True, **usage}))
            (RECORDINGS / f"{name}.figures.json").write_bytes(ask(url, path, body))


if __name__ == "__main__":
    main()
