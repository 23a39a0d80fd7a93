"""Which model types are known, what their library fills in, and how their layers are built. Pure data.

Defaults are those of the configuration classes in transformers 5.19; layer patterns those of the models in vLLM 0.32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """Model types that are built alike.

    Args:
        defaults: values of fields that config.json may leave out.
        tied: whether the output layer is the embedding where config.json does not say.
        norms: normalisations of hidden size in a layer.
        qk_norm: whether queries and keys are normalised by head.
        qkv_bias: whether q, k and v projections have a bias; None: as `attention_bias` says.
        gated: whether the feed-forward part has three matrices, not two.
        full_every: each n-th layer has full attention, the others a window; where there are no `layer_types`.
        linear_every: each n-th layer has full attention, the others a state; where there are no `layer_types`.
        windows: whether `sliding_window` alone gives every layer a window.
        latent: multi-head latent attention.
        gate_in_q: whether the query projection makes an output gate, too.
        shared_gate: whether the shared expert has a gate.
        countable: whether parameters can be counted from config.json.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    tied: bool = False
    norms: int = 2
    qk_norm: bool = False
    qkv_bias: bool | None = None
    gated: bool = True
    full_every: int | None = None
    linear_every: int | None = None
    windows: bool = False
    latent: bool = False
    gate_in_q: bool = False
    shared_gate: bool = False
    countable: bool = True


_LLAMA = Family()
_MISTRAL = Family(defaults={"num_key_value_heads": 8}, windows=True)
_QWEN2 = Family(qkv_bias=True)
_QWEN3 = Family(defaults={"head_dim": 128}, qk_norm=True)
_QWEN3_MOE = Family(defaults={"num_key_value_heads": 4}, qk_norm=True)
_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096}
_GEMMA2 = Family(defaults=_GEMMA | {"vocab_size": 256000}, tied=True, norms=4, full_every=2)
_GEMMA3 = Family(
    defaults=_GEMMA | {"vocab_size": 262208, "max_position_embeddings": 131072},
    tied=True,
    norms=4,
    qk_norm=True,
    full_every=6,
)
_DEEPSEEK = Family(latent=True)
_QWEN3_NEXT = Family(
    defaults={
        "head_dim": 256,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
    },
    qk_norm=True,
    linear_every=4,
    gate_in_q=True,
    shared_gate=True,
)
_MAMBA2 = Family(countable=False)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "ministral3": _MISTRAL,
    "mixtral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "mimo": _QWEN2,
    "smollm3": Family(defaults={"num_key_value_heads": 4}, tied=True),
    "qwen2_moe": Family(qkv_bias=True, shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
    "qwen3_next": _QWEN3_NEXT,
    "phi3": Family(windows=True),
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gpt_oss": Family(
        defaults={"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128}, qkv_bias=True, full_every=2
    ),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "granitemoehybrid": _MAMBA2,
    "bamba": _MAMBA2,
    "nemotron_h": _MAMBA2,
}
