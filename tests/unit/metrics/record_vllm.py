"""Writes a metrics page with a released vLLM's own definitions: `PYTHON record_vllm.py FOLDER V0|V1 > page.txt`.

FOLDER holds the unpacked wheel; PYTHON has prometheus_client. Of the V1 engine the collector of speculation runs as it
is; what its module imports beside it is not used by it, and is replaced. Names and kinds of all other series, and of
those of the V0 engine, are read in the source that defines them.
"""

import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER, ENGINE = Path(sys.argv[1]) / "vllm", sys.argv[2]
DEFINITION = re.compile(r'(?:self\._(?=[cg])|prometheus_client\.)(\w+?)(?:_cls)?\(\s*name="(vllm:[a-z_]+)"')
LABELS = {"model_name": "assistant", "engine": "0"}
TOKENS, REQUESTS = 1230, 30


class Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for whatever else of vLLM is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """A module of vLLM, or one that vLLM wants and that is not here."""
        if name.partition(".")[0] in ("vllm", "torch", "numpy"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Whose every name is a mock."""
        made = types.ModuleType(spec.name)
        made.__getattr__ = lambda name: mock.MagicMock(name=name)  # type: ignore[method-assign]
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing."""


def speculation() -> None:
    """400 drafts of 4 tokens, of which 2 are accepted each, as the V1 engine counts them."""
    import prometheus_client

    sys.meta_path.insert(0, Replaced())
    path = FOLDER / "v1" / "spec_decode" / "metrics.py"
    module = types.ModuleType("collector")
    sys.modules["collector"] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    module.__dict__["create_metric_per_engine"] = lambda metric, values: {
        engine: metric.labels(*labels) for engine, labels in values.items()
    }
    config = mock.MagicMock(num_speculative_tokens=4)
    taken = inspect.signature(module.SpecDecodingProm.__init__).parameters
    values = list(LABELS.values())
    given = {"labelvalues": values, "per_engine_labelvalues": {0: values}}
    collector = module.SpecDecodingProm(
        config, list(LABELS), **{name: value for name, value in given.items() if name in taken}
    )
    stats = module.SpecDecodingStats.new(4)
    for _ in range(400):
        stats.observe_draft(4, 2)
    collector.observe(stats)
    assert prometheus_client.REGISTRY.get_sample_value("vllm:spec_decode_num_drafts_total", LABELS) == 400.0


def others(source: str) -> None:
    """Tokens, requests and load; of the V0 engine its counters of speculation too, which it adds up anew each time."""
    import prometheus_client

    labels = LABELS if ENGINE == "V1" else {"model_name": "assistant"}
    amounts: dict[str, float] = {"generation_tokens": TOKENS, "request_success": REQUESTS, "num_requests_running": 2}
    amounts |= {"num_requests_waiting": 1}
    if ENGINE == "V0":
        # 800 of 1,600 drafted tokens after 400 steps, looked at four times on the way.
        shares = (0.25, 0.5, 0.75, 1.0)
        amounts |= {"spec_decode_draft_acceptance_rate": 0.5, "spec_decode_efficiency": 0.6}
        for name, total in (("accepted", 800), ("draft", 1600), ("emitted", 1200)):
            amounts[f"spec_decode_num_{name}_tokens"] = sum(total * share for share in shares)
    found = DEFINITION.findall(source)
    kinds = {name.removeprefix("vllm:").removesuffix("_total"): (kind, name) for kind, name in found}
    for name, amount in amounts.items():
        kind, full = kinds[name]
        reason = {"finished_reason": "stop"} if name == "request_success" else {}
        create = {"counter": prometheus_client.Counter, "gauge": prometheus_client.Gauge}[kind.lower()]
        made = create(full, name, [*labels, *reason])
        made.labels(**labels, **reason).inc(amount)


def main() -> None:
    """30 requests of 41 tokens."""
    import prometheus_client

    if ENGINE == "V1":
        speculation()
    others((FOLDER / ("v1/metrics/loggers.py" if ENGINE == "V1" else "engine/metrics.py")).read_text())
    text = prometheus_client.generate_latest().decode()
    kept = [line for line in text.splitlines() if line.startswith("vllm:") and "_created{" not in line]
    print("\n".join(kept))


main()
