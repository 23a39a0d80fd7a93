"""What each layer of a model keeps of a sequence: keys and values of all tokens, of a window, or a state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specfleet.sizing.families import Family
from specfleet.sizing.reading import Config, SizingProblem, shown

MOST_LAYERS = 4096


class Kind(StrEnum):
    """What a layer keeps."""

    FULL = "full"
    SLIDING = "sliding"
    STATE = "state"
    NOTHING = "nothing"


@dataclass(frozen=True)
class State:
    """A recurrent state, which does not grow with the sequence.

    Args:
        channels: of the short convolution.
        kernel: its width; kernel - 1 values are kept a channel, and one more for each drafted token.
        recurrent: elements of the recurrent part.
        heads: of it, which tensor parallelism divides.
        values: width of all heads' values together.
        recurrent_dtype: of that part, where it is not the model's.
    """

    channels: int
    kernel: int
    recurrent: int
    heads: int
    values: int
    recurrent_dtype: str | None = None


@dataclass(frozen=True)
class Layer:
    """One layer.

    Args:
        heads: key-value heads; 1 for latent attention, whose latent is one for all heads.
        width: elements a token and head: key and value together, or latent and rotary part.
        window: tokens that a sliding layer looks back.
    """

    kind: Kind
    heads: int = 0
    width: int = 0
    window: int | None = None
    state: State | None = None


_KINDS = {
    "full_attention": Kind.FULL,
    "attention": Kind.FULL,
    "sliding_attention": Kind.SLIDING,
    "chunked_attention": Kind.SLIDING,
    "linear_attention": Kind.STATE,
    "mamba": Kind.STATE,
    "mamba2": Kind.STATE,
}
_NEMOTRON = {"*": Kind.FULL, "M": Kind.STATE, "-": Kind.NOTHING, "E": Kind.NOTHING}


def layers_of(config: Config, family: Family, *, heads: int, head_dim: int, kv_heads: int) -> tuple[Layer, ...]:
    """The layers in their order.

    Raises:
        SizingProblem: a kind of layer that is not known, or fields that it needs are missing.
    """
    count = config.whole("num_hidden_layers")
    if count > MOST_LAYERS:
        raise config.wrong("num_hidden_layers", f"a whole number up to {MOST_LAYERS}", count)
    kinds = _kinds(config, family, count)
    full = _full(config, family, head_dim, kv_heads)
    made = {Kind.FULL: full, Kind.NOTHING: Layer(Kind.NOTHING)}
    if Kind.SLIDING in kinds:
        window = config.first_whole("sliding_window", "attention_chunk_size")
        if window is None:
            raise SizingProblem(f"{config.where} has sliding layers and no sliding_window: their KV cache is not known")
        made[Kind.SLIDING] = Layer(Kind.SLIDING, full.heads, full.width, window)
    if Kind.STATE in kinds:
        made[Kind.STATE] = Layer(Kind.STATE, state=_state(config))
    return tuple(made[kind] for kind in kinds)


def _full(config: Config, family: Family, head_dim: int, kv_heads: int) -> Layer:
    if family.latent:
        return Layer(Kind.FULL, 1, config.whole("kv_lora_rank") + config.whole("qk_rope_head_dim"))
    return Layer(Kind.FULL, kv_heads, 2 * head_dim)


def _kinds(config: Config, family: Family, count: int) -> Sequence[Kind]:
    named = config.items("layer_types", str, count)
    if named is not None:
        return [_kind(config, name) for name in named]
    pattern = config.text("hybrid_override_pattern")
    if pattern is not None:
        if len(pattern) != count or not set(pattern) <= set(_NEMOTRON):
            raise config.wrong("hybrid_override_pattern", f"{count} letters of {''.join(_NEMOTRON)}", pattern)
        return [_NEMOTRON[letter] for letter in pattern]
    attention = config.items("attn_layer_indices", int)
    if attention is not None:
        return [Kind.FULL if at in attention else Kind.STATE for at in range(count)]
    if family.linear_every is not None:
        every = config.optional_whole("full_attention_interval") or family.linear_every
        return [Kind.STATE if (at + 1) % every else Kind.FULL for at in range(count)]
    if not family.countable:
        raise SizingProblem(f"{config.where} does not say which layers have attention (layer_types)")
    return _windows(config, family, count)


def _kind(config: Config, name: str) -> Kind:
    if name not in _KINDS:
        raise SizingProblem(
            f"{config.where}: layer type {shown(name)} is not known, so neither is its KV cache; known are "
            f"{', '.join(_KINDS)}"
        )
    return _KINDS[name]


def _windows(config: Config, family: Family, count: int) -> Sequence[Kind]:
    """Which layers have a window, in models that name no layer types."""
    if config.given("sliding_window") is None:
        return [Kind.FULL] * count
    if family.full_every is not None:
        every = config.first_whole("sliding_window_pattern", "_sliding_window_pattern") or family.full_every
        return [Kind.SLIDING if (at + 1) % every else Kind.FULL for at in range(count)]
    if config.flag("use_sliding_window", otherwise=False):
        first = config.optional_whole("max_window_layers", least=0) or 0
        return [Kind.SLIDING if at >= first else Kind.FULL for at in range(count)]
    return [Kind.SLIDING if family.windows else Kind.FULL] * count


def _state(config: Config) -> State:
    """The state of linear attention (gated delta net) or Mamba-2, as vLLM 0.32 keeps it."""
    dtype = config.text("mamba_ssm_dtype") or config.text("mamba_ssm_cache_dtype")
    if config.given("linear_num_value_heads") is not None:
        key, value = config.whole("linear_key_head_dim"), config.whole("linear_value_head_dim")
        values = config.whole("linear_num_value_heads")
        channels = 2 * config.whole("linear_num_key_heads") * key + values * value
        return State(
            channels, config.whole("linear_conv_kernel_dim"), values * value * key, values, values * value, dtype
        )
    heads = config.first_whole("mamba_num_heads", "mamba_n_heads")
    width = config.first_whole("mamba_head_dim", "mamba_d_head")
    size = config.first_whole("ssm_state_size", "mamba_d_state")
    groups = config.first_whole("n_groups", "mamba_n_groups")
    kernel = config.first_whole("conv_kernel", "mamba_d_conv")
    if heads is None or width is None or size is None or groups is None or kernel is None:
        raise SizingProblem(
            f"{config.where} has layers with a state, and not the fields of Mamba-2 or of a gated delta net that give "
            "its size: this model's KV cache is not known"
        )
    return State(heads * width + 2 * groups * size, kernel, heads * width * size, heads, heads * width, dtype)
