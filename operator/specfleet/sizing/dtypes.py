"""Sizes of number formats, and what a checkpoint's quantisation makes of its weights. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.sizing.reading import Config, SizingProblem, shown

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
KV_DTYPE_BYTES: Mapping[str, int] = {
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}


@dataclass(frozen=True)
class Quantisation:
    """How linear layers are stored; embeddings and, unless it says so, the output layer keep the model's dtype.

    Args:
        method: as the checkpoint calls it.
        bits: a weight, scales and zero points included; None where the method is not known.
        attention: whether attention's matrices are quantised, too.
        dense: whether feed-forward matrices that belong to no expert are.
        head: whether the output layer is.
        kv_bytes: bytes of a KV element where the checkpoint asks for a quantised cache.
    """

    method: str
    bits: float | None
    attention: bool = True
    dense: bool = True
    head: bool = False
    kv_bytes: int | None = None


def dtype_bytes(name: str, where: str) -> int:
    """Bytes of a number of the model's dtype. Raises SizingProblem for a format that is not known."""
    short = name.removeprefix("torch.")
    if short not in DTYPE_BYTES:
        raise SizingProblem(f"{where}: dtype {shown(name)} is not known: expected one of {', '.join(DTYPE_BYTES)}")
    return DTYPE_BYTES[short]


def kv_dtype_bytes(name: str) -> int:
    """Bytes of a KV element by the engine's `--kv-cache-dtype`. Raises SizingProblem for one that is not known."""
    if name not in KV_DTYPE_BYTES:
        raise SizingProblem(
            f"the size of KV cache dtype {shown(name)} is not known: expected auto or one of "
            f"{', '.join(KV_DTYPE_BYTES)}"
        )
    return KV_DTYPE_BYTES[name]


def online(method: str) -> Quantisation:
    """Quantisation that the engine does while it loads (`--quantization fp8`)."""
    return Quantisation(method, 8 if method in ("fp8", "fp8_per_tensor", "fp8_per_block") else None)


def quantisation_of(config: Config) -> Quantisation | None:
    """What `quantization_config` says; None where there is none."""
    own = config.inner("quantization_config") or config.inner("compression_config")
    if own is None:
        return None
    method = own.text("quant_method") or own.text("quant_algo") or "unknown"
    skipped = " ".join(
        item
        for name in ("modules_to_not_convert", "ignore", "ignored_layers", "exclude_modules")
        for item in own.items(name, str) or ()
    )
    return Quantisation(
        method=method,
        bits=_bits(own, method.lower()),
        attention="attn" not in skipped,
        dense="mlp" not in skipped or "gate" in skipped or "router" in skipped,
        head=own.flag("lm_head", otherwise=False),
        kv_bytes=_kv_bytes(own),
    )


def _bits(own: Config, method: str) -> float | None:
    """Bits a weight. GPTQ and AWQ keep a 16-bit scale and a zero point a group, NVFP4 an 8-bit scale for 16 weights,
    MXFP4 one for 32."""
    if method in ("fp8", "fbgemm_fp8", "modelopt", "modelopt_fp8") and "FP4" not in (own.text("quant_algo") or ""):
        return 8
    if method in ("modelopt", "modelopt_fp4", "nvfp4"):
        return 4 + 8 / 16
    if method == "mxfp4":
        return 4 + 8 / 32
    if method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        bits = own.optional_whole("bits") or own.optional_whole("w_bit") or 4
        return _grouped(bits, own.first_whole("group_size", "q_group_size"), zero_point=True)
    if method == "compressed-tensors":
        return _compressed(own)
    if method == "bitsandbytes":
        return 4.5 if own.flag("load_in_4bit", otherwise=False) else 8
    return None


def _grouped(bits: int, group: int | None, *, zero_point: bool) -> float:
    return bits + (16 + (bits if zero_point else 0)) / group if group else bits


def _compressed(own: Config) -> float | None:
    groups = own.inner("config_groups")
    found: set[float] = set()
    for name in groups.fields if groups is not None else ():
        weights = groups.inner(name) if groups is not None else None
        weights = weights.inner("weights") if weights is not None else None
        bits = weights.optional_whole("num_bits") if weights is not None else None
        if weights is None or bits is None:
            return None
        group = weights.first_whole("group_size") if weights.text("strategy") != "block" else None
        if bits == 4 and weights.text("type") == "float":
            found.add(4 + 8 / (group or 16))
        else:
            found.add(_grouped(bits, group, zero_point=not weights.flag("symmetric", otherwise=True)))
    return found.pop() if len(found) == 1 else None


def _kv_bytes(own: Config) -> int | None:
    """An 8-bit cache where the checkpoint asks for one, as vLLM takes it for `auto`."""
    scheme: Any = own.given("kv_cache_scheme") or own.given("kv_cache_quant_algo")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return 1
    return 1 if isinstance(scheme, str) and scheme.upper() == "FP8" else None
