"""Writes a metrics page with a released SGLang's own collectors: `PYTHON record_sglang.py FOLDER > page.txt`.

FOLDER holds the unpacked wheel; PYTHON has prometheus_client. What the collectors' module imports beside it needs a GPU
build and is not used by the collectors, so it is replaced; the definitions and what is counted when are SGLang's.
"""

import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(sys.argv[1])
PLACES = ("observability/metrics_collector.py", "metrics/collector.py")


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for whatever else of SGLang is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """A module of SGLang, or one that SGLang wants and that is not here."""
        if name.partition(".")[0] in ("sglang", "torch", "msgspec", "numpy", "zmq"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Whose every name is a mock."""
        made = types.ModuleType(spec.name)
        made.__getattr__ = lambda name: mock.MagicMock(name=name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing."""


def collectors() -> types.ModuleType:
    """The module of the collectors."""
    sys.meta_path.insert(0, Replaced())
    path = next(FOLDER / "sglang" / "srt" / place for place in PLACES if (FOLDER / "sglang" / "srt" / place).exists())
    module = types.ModuleType("collectors")
    sys.modules["collectors"] = module
    module.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    # The one function of another module that the definitions call.
    module.__dict__["generate_buckets"] = lambda given, default: default
    module.__dict__["exponential_buckets"] = lambda **_: [1.0, 2.0]
    return module


def finish(tokenizer: Any, route: str, requests: int, tokens: int, verified: int) -> None:
    """As many requests of a route, each with these tokens and verifications."""
    taken = inspect.signature(tokenizer.observe_one_finished_request).parameters
    given: dict[str, Any] = {
        "labels": {**tokenizer.labels, "route": route},
        "prompt_tokens": 20,
        "generation_tokens": tokens,
        "cached_tokens": 0,
        "e2e_latency": 0.5,
        "has_grammar": False,
        "retraction_count": 0,
        "spec_verify_ct": verified,
    }
    for number in range(requests):
        streaming = {"is_streaming": number % 2 == 0}
        tokenizer.observe_one_finished_request(
            **{name: value for name, value in (given | streaming).items() if name in taken}
        )


def main() -> None:
    """Two routes: code with 41 tokens in 10 verifications a request, chat with 41 in 36."""
    module = collectors()
    import prometheus_client

    labels = {"model_name": "assistant", "engine_type": "unified", "route": ""}
    taken = inspect.signature(module.TokenizerMetricsCollector.__init__).parameters
    wanted = {"labels": labels, "server_args": mock.MagicMock(), "collect_tokens_histogram": False}
    if "server_args" not in taken:
        wanted |= {name: None for name in taken if name.startswith("bucket_")}
    tokenizer = module.TokenizerMetricsCollector(**{name: value for name, value in wanted.items() if name in taken})
    finish(tokenizer, "code", 10, 41, 10)
    finish(tokenizer, "chat", 20, 41, 36)
    # Without buckets: they say nothing that is read, and are most of a page.
    text = prometheus_client.generate_latest().decode()
    drop = ("_bucket{", "_created{", "_sum{")
    kept = [line for line in text.splitlines() if line.startswith("sglang:") and not any(word in line for word in drop)]
    print("\n".join(kept))


main()
