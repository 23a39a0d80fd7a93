"""The engine module for each engine type."""

from __future__ import annotations

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.protocol import EngineModule
from specfleet.engines.sglang import SGLang
from specfleet.engines.trtllm import TensorRTLLM
from specfleet.engines.vllm import VLLM

_MODULES: dict[EngineType, EngineModule] = {
    EngineType.VLLM: VLLM(),
    EngineType.SGLANG: SGLang(),
    EngineType.TENSORRTLLM: TensorRTLLM(),
}


def engine_module(kind: EngineType) -> EngineModule:
    """The module of one engine type."""
    return _MODULES[kind]
