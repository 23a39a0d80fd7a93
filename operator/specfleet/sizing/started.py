"""How an engine that is started with given arguments lays out its memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.arguments import ReadArguments
from specfleet.engines.json_text import read_value
from specfleet.sizing.cache import Blocks
from specfleet.sizing.dtypes import dtype_bytes, kv_dtype_bytes, online
from specfleet.sizing.layers import Kind
from specfleet.sizing.plan import GIB, OVERHEAD_BYTES, Serving
from specfleet.sizing.quantities import bytes_of
from specfleet.sizing.reading import SizingProblem, shown
from specfleet.sizing.shape import ModelShape

_MORE_UTILISATION_SINCE = Version("0.20")
_CHANGES_THE_LAYOUT = (
    "cpu-offload-gb",
    "decode-context-parallel-size",
    "prefill-context-parallel-size",
    "kv-cache-dtype-skip-layers",
    "kv-sharing-fast-prefill",
    "hf-overrides",
)
_TAKES_MEMORY = ("enable-lora", "enable-prompt-embeds", "enable-eplb")
ONE_GROUP = "disable-hybrid-kv-cache-manager"
READ_FLAGS = frozenset(
    {
        "max-model-len",
        "gpu-memory-utilization",
        "kv-cache-dtype",
        "kv-cache-memory-bytes",
        "block-size",
        "num-gpu-blocks-override",
        ONE_GROUP,
        "dtype",
        "quantization",
        *_CHANGES_THE_LAYOUT,
        *_TAKES_MEMORY,
    }
)
"""Flags of vLLM that the plan looks at."""
READ_KEYS = frozenset({"draft_tensor_parallel_size", "kv_cache_dtype", "quantization"})
"""Keys of the speculative config that it looks at."""


@dataclass(frozen=True)
class Parallel:
    """How many accelerators share a model."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1


@dataclass(frozen=True)
class Told:
    """What the person who plans says; None: what the engine's arguments say, or its own default.

    Args:
        memory_bytes: of one accelerator, as a process sees it; None for an engine on CPUs.
        cpu_cache: the variable VLLM_CPU_KVCACHE_SPACE, in GiB.
    """

    memory_bytes: int | None = None
    cpu_cache: str | None = None
    context: int | None = None
    utilisation: float | None = None
    overhead_bytes: int | None = None


PLANNED_ENGINES = (EngineType.VLLM, EngineType.SGLANG)


def check_engine(engine: EngineType) -> None:
    """Raises SizingProblem where how the engine divides its memory is not known."""
    if engine not in PLANNED_ENGINES:
        raise SizingProblem(
            f"how {engine} divides its memory is not known to this plan (kv_cache_config.free_gpu_memory_fraction is a "
            "share of what its own weights, graphs and workspaces leave): it knows vLLM and SGLang. Start a pod and "
            "read its log"
        )


def serving_of(
    arguments: ReadArguments, release: str, target: ModelShape, parallel: Parallel, max_sequences: int, told: Told
) -> Serving:
    """How a pod that is started so serves.

    Args:
        release: of the engine: vLLM takes 0.90 of the memory by itself, since 0.20 it is 0.92.
        max_sequences: that one engine runs at once.

    Raises:
        SizingProblem: an argument cannot be read, or changes the layout in a way that is not known.
    """
    flags = dict(arguments.flags)
    refuse_layout(flags, _CHANGES_THE_LAYOUT)
    fits_itself = flags.get("max-model-len") in ("auto", "-1")
    served = whole(flags, "max-model-len") or (None if fits_itself else target.max_positions)
    if fits_itself and told.context is None:
        raise SizingProblem(
            "with max-model-len auto the engine serves as long sequences as fit: write pools.sequenceTokens, or give "
            "--context, to plan"
        )
    context = sequence_length(told.context, served, "max-model-len")
    default = 0.92 if Version(release) >= _MORE_UTILISATION_SINCE else 0.9
    on_cpu = told.memory_bytes is None
    return Serving(
        memory_bytes=told.memory_bytes or 0,
        utilisation=told.utilisation or share(flags, "gpu-memory-utilization") or default,
        overhead_bytes=OVERHEAD_BYTES if told.overhead_bytes is None else told.overhead_bytes,
        context=context,
        longest=served,
        max_sequences=max_sequences,
        kv_bytes=kv_bytes(flags.get("kv-cache-dtype"), target),
        blocks=Blocks(
            size=whole(flags, "block-size") or (128 if on_cpu and target.latent is None else 16),
            grouped=ONE_GROUP not in flags,
        ),
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        kv_memory_bytes=_kv_memory(flags, told),
        kv_blocks=whole(flags, "num-gpu-blocks-override"),
    )


def refuse_layout(flags: Mapping[str, str | None], names: Iterable[str]) -> None:
    """Raises SizingProblem where one of these flags is on: they change what is kept where."""
    for name in names:
        if name in flags and flags[name] not in ("0", "1", "{}", ""):
            raise SizingProblem(
                f"engine.args[{name}] changes what is kept where, which this plan does not know: remove it to plan, "
                "and compare with the running pod"
            )


def sequence_length(asked: int | None, served: int | None, flag: str) -> int:
    """Tokens of the sequences to plan by: those asked for, else the longest that is served, which `flag` says.

    Raises:
        SizingProblem: nobody says how long, or longer than is served.
    """
    context = asked or served
    if context is None:
        raise SizingProblem(f"neither {flag} nor the target's config.json says how long sequences are: give --context")
    if served is not None and context > served:
        raise SizingProblem(
            f"a sequence of {context} tokens is longer than the {served} that are served: lower --context or "
            f"pools.sequenceTokens, or raise engine.args[{flag}]"
        )
    return context


def uncounted(arguments: ReadArguments) -> tuple[str, ...]:
    """Notes on arguments that take memory which the plan does not count."""
    given = [name for name in _TAKES_MEMORY if name in dict(arguments.flags)]
    return tuple(f"what engine.args[{name}] takes is not counted: raise --overhead by it" for name in given)


def _kv_memory(flags: Mapping[str, str | None], told: Told) -> int | None:
    """KV cache that the engine is told outright. On CPUs nothing else bounds it but the node's own memory."""
    text = flags.get("kv-cache-memory-bytes")
    if text is not None:
        return bytes_of(text)
    if told.memory_bytes is not None:
        return None
    if told.cpu_cache is None or not told.cpu_cache.isdigit() or not int(told.cpu_cache):
        raise SizingProblem(
            "an engine on CPUs takes its KV cache from the node's memory as it finds it: write engine.env "
            "VLLM_CPU_KVCACHE_SPACE, in whole GiB, to plan with"
        )
    return int(told.cpu_cache) * GIB


def loaded(target: ModelShape, arguments: ReadArguments) -> ModelShape:
    """The target as the engine loads it: `--dtype`, and quantisation that it does itself, change its weights.

    Raises:
        SizingProblem: the dtype is not known.
    """
    flags = dict(arguments.flags)
    dtype, method = flags.get("dtype"), flags.get("quantization")
    if dtype and dtype != "auto":
        size = dtype_bytes(dtype, "engine.args[dtype]")
        known = target.parameter_bytes
        if known is not None and target.quantisation is None:
            known = known * size // target.dtype_bytes
        target = replace(target, dtype=dtype, dtype_bytes=size, parameter_bytes=known)
    elif target.dtype_bytes == 4:
        # vLLM serves float32 checkpoints in half of it.
        known = target.parameter_bytes // 2 if target.parameter_bytes is not None else None
        target = replace(target, dtype="bfloat16", dtype_bytes=2, parameter_bytes=known)
    if method and target.quantisation is None:
        target = replace(target, quantisation=online(method), parameter_bytes=None)
    return target


def alike(target: ModelShape, draft: ModelShape | None) -> tuple[ModelShape, ModelShape | None]:
    """Both as vLLM lays them out without its hybrid manager: where some layers have windows, all keep all tokens."""
    kinds = {layer.kind for shape in (target, draft) if shape is not None for layer in shape.layers}
    if not {Kind.FULL, Kind.SLIDING} <= kinds:
        return target, draft
    return _without_windows(target), None if draft is None else _without_windows(draft)


def _without_windows(shape: ModelShape) -> ModelShape:
    layers = tuple(
        replace(layer, kind=Kind.FULL, window=None) if layer.kind is Kind.SLIDING else layer for layer in shape.layers
    )
    return replace(shape, layers=layers)


def loaded_beside(draft: ModelShape, target: ModelShape, config: Mapping[str, Any] | None) -> ModelShape:
    """The draft as the engine loads it: in the target's dtype, and quantised where the speculative config says so."""
    known = draft.parameter_bytes
    if known is not None and draft.quantisation is None:
        known = known * target.dtype_bytes // draft.dtype_bytes
    draft = replace(draft, dtype=target.dtype, dtype_bytes=target.dtype_bytes, parameter_bytes=known)
    method = (config or {}).get("quantization")
    if isinstance(method, str) and draft.quantisation is None:
        draft = replace(draft, quantisation=online(method), parameter_bytes=None)
    return draft


def draft_kv_bytes(config: Mapping[str, Any] | None, target: ModelShape) -> int | None:
    """Bytes of a KV element of the draft where the speculative config gives it a dtype of its own; else None."""
    dtype = (config or {}).get("kv_cache_dtype")
    return kv_bytes(dtype, target) if isinstance(dtype, str) else None


def kv_bytes(dtype: str | None, target: ModelShape) -> int:
    """Bytes of a KV element: `auto` is the checkpoint's own wish, else the model's dtype."""
    if dtype is None or dtype == "auto":
        own = target.quantisation.kv_bytes if target.quantisation is not None else None
        return own or target.dtype_bytes
    return kv_dtype_bytes(dtype)


def draft_tensor(config: Mapping[str, Any] | None, tensor: int) -> int:
    """Accelerators that share the draft: the target's, unless its `draft_tensor_parallel_size` says 1."""
    value = (config or {}).get("draft_tensor_parallel_size")
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else tensor


def whole(flags: Mapping[str, str | None], name: str) -> int | None:
    """A flag that holds a whole number; None where it is not given, or left to the engine. Raises SizingProblem."""
    text = flags.get(name)
    if text is None or text in ("auto", "-1"):
        return None
    value = read_value(text)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SizingProblem(f"expected engine.args[{name}] to be a whole number from 1, found {shown(text)}")
    return value


def share(flags: Mapping[str, str | None], name: str) -> float | None:
    """A flag that holds a share, above 0 and up to 1; None where it is not given. Raises SizingProblem."""
    text = flags.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise SizingProblem(f"expected engine.args[{name}] to be a number above 0 and up to 1, found {shown(text)}")
    return value
