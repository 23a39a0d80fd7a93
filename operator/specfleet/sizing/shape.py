"""What sizing needs to know of a model, from its config.json. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.sizing.dtypes import Quantisation, dtype_bytes, quantisation_of
from specfleet.sizing.families import FAMILIES, Family
from specfleet.sizing.layers import Kind, Layer, layers_of
from specfleet.sizing.reading import Config, SizingProblem, shown

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True)
class Experts:
    """Mixture of experts.

    Args:
        count: routed experts of a layer.
        width: of an expert's feed-forward part.
        shared: width of the experts that every token passes; 0 for none.
        layers: how many layers have experts.
        active: routed experts that a token passes.
    """

    count: int
    width: int
    shared: int
    layers: int
    active: int


@dataclass(frozen=True)
class Latent:
    """Ranks and widths of multi-head latent attention; `query_rank` is None where queries are not compressed."""

    rank: int
    query_rank: int | None
    rope: int
    nope: int
    value: int


@dataclass(frozen=True)
class ModelShape:
    """A model's shape.

    Args:
        architecture: the first of `architectures`; "" where the file names none.
        layers: what each keeps of a sequence.
        head_dim: width of a query head; 0 with latent attention.
        draft_vocab: entries of a draft head's own output layer, which may be fewer than the target's.
        mtp_layers: layers for multi-token prediction in the same checkpoint.
        fused_layers: hidden states of the target that a DFlash or EAGLE-3 head takes in; None where it does not say.
        medusa_heads, medusa_layers: of a Medusa checkpoint; 0 for others.
        parts_uncounted: whether the file describes more than the language model (images, audio).
        parameter_bytes: size of the weights as their index says; None where it is not known.
    """

    architecture: str
    model_type: str
    family: Family
    layers: tuple[Layer, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    intermediate: int
    tied: bool
    attention_bias: bool
    dtype: str
    dtype_bytes: int
    max_positions: int | None
    latent: Latent | None = None
    experts: Experts | None = None
    quantisation: Quantisation | None = None
    mtp_layers: int = 0
    draft_vocab: int | None = None
    fused_layers: int | None = None
    medusa_heads: int = 0
    medusa_layers: int = 0
    parts_uncounted: bool = False
    parameter_bytes: int | None = None

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, parameter_bytes: int | None = None, where: str = "config.json"
    ) -> ModelShape:
        """The shape that a parsed config.json describes.

        Args:
            config: the parsed file.
            parameter_bytes: `metadata.total_size` of the checkpoint's safetensors index, where it is known.
            where: what messages call the file.

        Raises:
            SizingProblem: a field is missing or wrong, or the architecture is not known.
        """
        if not isinstance(config, Mapping):
            raise SizingProblem(f"{where}: expected a JSON object, found {shown(config)}")
        outer = Config(config, where)
        inner = next((found for name in (*_NESTED, "transformer_layer_config") if (found := outer.inner(name))), outer)
        model_type = inner.text("model_type") or outer.text("model_type") or ""
        family = FAMILIES.get(model_type)
        if family is None:
            raise SizingProblem(
                f"{where}: model_type {shown(model_type)} is not known, so neither are its KV cache and weights; known "
                f"are {', '.join(sorted(FAMILIES))}: read the engine's own figure from its log, GPU KV cache size"
            )
        text = Config(inner.fields, inner.where, family.defaults)
        return _shape(outer, text, model_type, family, parameter_bytes)

    @property
    def hybrid(self) -> bool:
        """Whether its layers keep different things."""
        return len({(layer.kind, layer.window) for layer in self.layers if layer.kind is not Kind.NOTHING}) > 1


def medusa_shape(config: Mapping[str, Any], target: ModelShape, *, where: str = "config.json") -> ModelShape:
    """Medusa heads, whose config.json describes only themselves; sizes that it leaves out are the target's.

    Raises:
        SizingProblem: the number of heads is missing or wrong.
    """
    own = Config(config, where)
    return ModelShape(
        architecture=_architecture(own),
        model_type="medusa",
        family=Family(),
        layers=(),
        hidden=own.optional_whole("hidden_size") or target.hidden,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_dim=target.head_dim,
        vocab=own.optional_whole("vocab_size") or target.vocab,
        intermediate=0,
        tied=False,
        attention_bias=False,
        dtype=target.dtype,
        dtype_bytes=target.dtype_bytes,
        max_positions=None,
        draft_vocab=own.optional_whole("truncated_vocab_size"),
        medusa_heads=own.first_whole("num_heads", "medusa_num_heads") or own.whole("num_heads"),
        medusa_layers=own.first_whole("num_hidden_layers", "medusa_num_layers") or 1,
    )


def _shape(outer: Config, text: Config, model_type: str, family: Family, parameter_bytes: int | None) -> ModelShape:
    hidden, heads = text.whole("hidden_size"), text.whole("num_attention_heads")
    kv_heads = text.optional_whole("num_key_value_heads") or heads
    head_dim = text.optional_whole("head_dim") or text.optional_whole("attention_head_dim") or hidden // heads
    if head_dim == 0:
        raise text.wrong("num_attention_heads", f"at most hidden_size, {hidden}, without head_dim", heads)
    if kv_heads > heads:
        raise text.wrong("num_key_value_heads", f"at most num_attention_heads, {heads},", kv_heads)
    layers = layers_of(text, family, heads=heads, head_dim=head_dim, kv_heads=kv_heads)
    if all(layer.kind is Kind.NOTHING for layer in layers):
        raise SizingProblem(f"{text.where} has no layer that keeps anything of a sequence: is it a language model?")
    dtype = text.text("dtype") or text.text("torch_dtype") or outer.text("dtype") or outer.text("torch_dtype")
    dtype = (dtype or "bfloat16").removeprefix("torch.")
    dflash = outer.inner("dflash_config") or outer
    fused = dflash.items("target_layer_ids", int) or outer.items("eagle_aux_hidden_state_layer_ids", int)
    return ModelShape(
        architecture=_architecture(outer),
        model_type=model_type,
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=0 if family.latent else head_dim,
        vocab=text.whole("vocab_size"),
        intermediate=text.whole("intermediate_size"),
        tied=text.flag("tie_word_embeddings", otherwise=outer.flag("tie_word_embeddings", otherwise=family.tied)),
        attention_bias=text.flag("attention_bias", otherwise=bool(family.qkv_bias)),
        dtype=dtype,
        dtype_bytes=dtype_bytes(dtype, outer.where),
        max_positions=text.optional_whole("max_position_embeddings"),
        latent=_latent(text) if family.latent else None,
        experts=_experts(text, len(layers)),
        quantisation=quantisation_of(outer) or quantisation_of(text),
        mtp_layers=text.first_whole("num_nextn_predict_layers", "mtp_num_hidden_layers") or 0,
        draft_vocab=outer.optional_whole("draft_vocab_size") or text.optional_whole("draft_vocab_size"),
        fused_layers=len(fused) if fused else None,
        parts_uncounted=any(outer.given(name) is not None for name in ("vision_config", "audio_config")),
        parameter_bytes=parameter_bytes,
    )


def _architecture(config: Config) -> str:
    named = config.items("architectures", str)
    return str(named[0]) if named else ""


def _latent(config: Config) -> Latent:
    return Latent(
        rank=config.whole("kv_lora_rank"),
        query_rank=config.optional_whole("q_lora_rank"),
        rope=config.whole("qk_rope_head_dim"),
        nope=config.whole("qk_nope_head_dim"),
        value=config.whole("v_head_dim"),
    )


def _experts(config: Config, layers: int) -> Experts | None:
    count = config.first_whole("num_local_experts", "num_experts", "n_routed_experts")
    if count is None:
        return None
    width = config.optional_whole("moe_intermediate_size") or config.whole("intermediate_size")
    dense = set(config.items("mlp_only_layers", int) or ())
    step = config.optional_whole("decoder_sparse_step") or config.optional_whole("moe_layer_freq") or 1
    first = config.optional_whole("first_k_dense_replace", least=0) or 0
    sparse = [at for at in range(layers) if at >= first and at not in dense and (at + 1) % step == 0]
    shared = config.first_whole("shared_expert_intermediate_size") or width * (
        config.first_whole("n_shared_experts") or 0
    )
    active = config.first_whole("num_experts_per_tok", "experts_per_token") or count
    return Experts(count, width, shared, len(sparse), min(active, count))
